"""Small versions of ``python -m tests.faults.bounds``: the first result comes as soon as under ``jax.jit``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import bounds


@pytest.mark.parametrize("case", ["nesting", "constant"])
def test_the_first_result_takes_no_longer_than_under_jit(case: str, tmp_path: Path) -> None:
    """By processor time, as what others do on the machine is no fault of ours; and it is the same result later."""
    jit, auto = (bounds.measured(kind, case, bounds.SMALL[case], tmp_path) for kind in ("jit", "auto"))
    assert auto["first_cpu"] <= bounds.TIMES * jit["first_cpu"] + bounds.MORE_SECONDS
    assert auto["agrees"] and auto["said"]
