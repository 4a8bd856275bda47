"""Each as a user runs it, with all that can be stitched, and with a GPU's schedules: right, and nothing raised."""

from __future__ import annotations

import jax
import pytest

from tests.fuzz import judge
from tests.fuzz.ways import Seen, Way, watched
from tests.neighbours import loops, opcodes, shapes, sorts
from tests.neighbours.sorts import Program

CASES: dict[str, dict[str, Program]] = {
    "sort": sorts.PROGRAMS,
    "table": loops.TABLES,
    "argument": loops.ARGUMENTS,
    "scan": loops.SCANS,
    "carried": loops.CARRIED,
    "image": shapes.RESIZED,
    "operation": shapes.REFUSED,
    "opcode": opcodes.OPCODES,
}


@pytest.mark.parametrize("way", ["default", "forced", "h200-forced"])
@pytest.mark.parametrize(("case", "name"), [(case, name) for case, programs in CASES.items() for name in programs])
def test_neighbour(case: str, name: str, way: str) -> None:
    fun, args = CASES[case][name]
    want = judge.arrays(jax.jit(fun)(*args))
    with watched(Seen(), optimised=False):
        got = Way(way, sum(map(ord, name))).run(fun, args)
    wrong = judge.judge(fun, args, got, want)
    assert not wrong, "\n".join(w.message for w in wrong)
