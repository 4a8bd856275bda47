"""Reductions of so many elements by one lane that each block of them is reduced by itself first, for accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import ceil

from jax_stitch.emit.operations import FLOATS
from jax_stitch.emit.reducers import Reducer
from jax_stitch.kernel.statements import Allocate, Apply, Assign, Body, JoinStep, Statement
from jax_stitch.schedule.model import LoopPass, Part


class BlockedSums:
    """The accumulators of a pass: that of the whole, and before it those of blocks, of blocks of blocks, until none
    takes many elements.
    """

    def __init__(self, part: Part, row_pass: LoopPass, reducers: Mapping[int, Reducer], whole: Callable[[int], str]):
        """Take the reductions; ``whole`` names the accumulator of the whole of each."""
        self._block, self._whole = part.sum_block, whole
        depth = join_depth(part.split.per_lane(row_pass.size), part.sum_block)
        blocked = depth > 0 and not row_pass.scans
        self._reducers = {i: r for i, r in reducers.items() if blocked and is_blocked(r)}
        self._depth = depth if self._reducers else 0

    def target(self, i: int) -> str:
        """Return the accumulator that takes elements in."""
        return self._block_of(i, 0) if i in self._reducers else self._whole(i)

    def declarations(self) -> list[Statement]:
        accumulators: list[Statement] = []
        for i, r in self._reducers.items():
            assert r.identity is not None
            accumulators += [Allocate.accumulator(self._block_of(i, k), r.name, r.identity) for k in range(self._depth)]
        return accumulators

    def joins(self) -> list[JoinStep]:
        """Return what is done after each block, after each block of blocks, and so on."""
        return [
            JoinStep(tuple(s for i, r in self._reducers.items() for s in self._join(i, r, k)))
            for k in range(self._depth)
        ]

    def totals(self) -> list[Apply]:
        """Return what is done once the pass has ended."""
        joins: list[Apply] = []
        for i, r in self._reducers.items():
            names = [self._block_of(i, k) for k in range(self._depth)] + [self._whole(i)]
            joins += [Apply("join", (b, a), r.name) for a, b in pairwise(names)]
        return joins

    def _block_of(self, i: int, depth: int) -> str:
        return f"{self._whole(i)}_of_run{depth or ''}"

    def _join(self, i: int, r: Reducer, depth: int) -> Body:
        block = r.cell(self._block_of(i, depth))
        total = r.cell(self._block_of(i, depth + 1) if depth + 1 < self._depth else self._whole(i))
        assert r.identity is not None
        return Assign(total, r.combined(total, block)), Assign(block, r.identity)


def join_depth(count: int, block: int) -> int:
    """Return how often blocks are put into blocks, so that no accumulator takes many of ``count`` elements."""
    depth = 0
    while count > 2 * block:
        depth, count = depth + 1, ceil(count / block)
    return depth


def is_blocked(r: Reducer) -> bool:
    """Return whether the order of its elements changes a reduction's rounding, and blocks can start from a neutral
    element.
    """
    return r.fields == 1 and r.dtypes[0] in FLOATS and r.identity is not None and not r.chooses
