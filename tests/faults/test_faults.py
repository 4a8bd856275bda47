"""Some of the faults of ``python -m tests.faults``: one of each kind, at random moments."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.faults.inject import CALLS
from tests.faults.trial import Ground, trial_of

SEEDS = {call: next(n for n in range(100, 10_000) if trial_of(n).fault.call == call) for call in CALLS}


@pytest.fixture(autouse=True)
def everything_is_planned() -> None:
    """Here programs are kept on disk and found there."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with mock.patch.dict(os.environ), mock.patch.object(tempfile, "tempdir", None):
        yield Ground(Path(tmp_path_factory.mktemp("faults")))


@pytest.mark.parametrize("call", CALLS)
def test_results_are_right_whatever_fails(ground: Ground, call: str) -> None:
    """At most one warning; no file, process or open file left; the next start is well."""
    trial = trial_of(SEEDS[call])
    assert not ground.held(trial), str(trial)
