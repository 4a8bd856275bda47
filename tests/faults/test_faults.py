"""Some of the faults of ``python -m tests.faults``: one of each kind, at random moments."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from jax_stitch.jit.rebuilt import elsewhere
from tests.faults.inject import CALLS
from tests.faults.trial import Ground, Trial, trial_of

KINDS = [(call, "now") for call in CALLS if call != "child"] + [
    ("open", "auto"),
    ("exec", "auto"),
    ("write", "child"),
    ("rename", "child"),
    ("child", "auto"),
]
"""The default mode takes longer: a few of those."""


def first(call: str, place: str) -> Trial:
    """The first trial of a kind."""
    trials = (trial_of(number) for number in range(100, 10_000))
    return next(trial for trial in trials if (trial.fault.call, trial.place) == (call, place) and not trial.may_hang)


@pytest.fixture(autouse=True)
def everything_is_planned() -> None:
    """Here programs are kept on disk and found there."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with (
        mock.patch.dict(os.environ),
        mock.patch.object(tempfile, "tempdir", None),
        mock.patch.object(elsewhere, "MAKER", elsewhere.MAKER),
    ):
        ground = Ground(Path(tmp_path_factory.mktemp("faults")))
        yield ground
        ground.maker.shut_down()


@pytest.mark.parametrize(("call", "place"), KINDS)
def test_results_are_right_whatever_fails(ground: Ground, call: str, place: str) -> None:
    """At most one warning; no file, process or open file left; the next start is well."""
    trial = first(call, place)
    assert not ground.held(trial), str(trial)
