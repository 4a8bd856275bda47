"""Reductions of so many elements by one lane that each run of them is reduced by itself first, for accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import ceil

from jax_stitch.emit.operations import FLOATS
from jax_stitch.emit.reducers import Reducer
from jax_stitch.kernel.statements import Accumulator, Assign, Body, Join, JoinStep, Statement
from jax_stitch.schedule.model import LoopStage, Part


class BlockedSums:
    """The accumulators of a pass: that of the whole, and before it those of runs, of runs of runs, until none takes
    many.
    """

    def __init__(self, part: Part, stage: LoopStage, reducers: Mapping[int, Reducer], whole: Callable[[int], str]):
        """``whole`` names the accumulator of a reduction's whole."""
        self._run, self._whole = part.run, whole
        levels = levels_of_runs(part.split.per_lane(stage.size), part.run)
        blocked = levels > 0 and not stage.scans
        self._reducers = {i: r for i, r in reducers.items() if blocked and is_blocked(r)}
        self._levels = levels if self._reducers else 0

    def target(self, i: int) -> str:
        """The accumulator that takes elements in."""
        return self._of_runs(i, 0) if i in self._reducers else self._whole(i)

    def declarations(self) -> list[Statement]:
        found: list[Statement] = []
        for i, r in self._reducers.items():
            assert r.identity is not None
            found += [Accumulator(self._of_runs(i, k), r.name, r.identity) for k in range(self._levels)]
        return found

    def joins(self) -> list[JoinStep]:
        """What is done after each run, after each run of runs, ..."""
        return [
            JoinStep(tuple(s for i, r in self._reducers.items() for s in self._join(i, r, k)))
            for k in range(self._levels)
        ]

    def totals(self) -> list[Join]:
        """What is done once the pass has ended."""
        found: list[Join] = []
        for i, r in self._reducers.items():
            names = [self._of_runs(i, k) for k in range(self._levels)] + [self._whole(i)]
            found += [Join(r.name, b, a) for a, b in pairwise(names)]
        return found

    def _of_runs(self, i: int, level: int) -> str:
        return f"{self._whole(i)}_of_run{level or ''}"

    def _join(self, i: int, r: Reducer, level: int) -> Body:
        run = r.cell(self._of_runs(i, level))
        total = r.cell(self._of_runs(i, level + 1) if level + 1 < self._levels else self._whole(i))
        assert r.identity is not None
        return Assign(total, r.combined(total, run)), Assign(run, r.identity)


def levels_of_runs(count: int, run: int) -> int:
    """Levels of runs, of runs of runs, ..., so that no accumulator takes many of ``count`` elements."""
    levels = 0
    while count > 2 * run:
        levels, count = levels + 1, ceil(count / run)
    return levels


def is_blocked(r: Reducer) -> bool:
    """Whether the order of its elements changes a reduction's rounding, and runs can start from a neutral element."""
    return r.fields == 1 and r.dtypes[0] in FLOATS and r.identity is not None
