"""Costly values of few places that longer passes read: computed once, before the first of those passes.

Adafactor's update of a matrix is its gradient by a factor of its row and one of its column, each a power: a pass over
the matrix would raise as many powers as it has elements, twice. On a CPU the factors are arrays in the near cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from jax_stitch.analysis.accesses import Element
from jax_stitch.analysis.binding import position_in
from jax_stitch.ir.operations import HEAVY
from jax_stitch.schedule.model import InnerReducePass, LoopPass, RowPass
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.walks import walk_pass

LEAST_AGAIN = 4
"""How many times as many places a pass has as the value, for that to be kept: it is written, and read from there."""


def with_kept(shape: PatternView, passes: Sequence[RowPass], cached: Collection[int]) -> tuple[RowPass, ...]:
    """Return the passes, with one for each value that is kept before the first pass that reads it."""
    made, held = tuple(passes), set(cached)
    while (found := next(_candidates(shape, made, held), None)) is not None:
        node, first = found
        held.add(node)
        made = (*made[:first], LoopPass(shape.places(node), (), (), (), keeps=(node,)), *made[first:])
    return made


def _candidates(shape: PatternView, passes: Sequence[RowPass], cached: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield values that are worth it, those that are computed from others first, and the first pass that computes
    each.
    """
    computed = [walk_pass(shape, s, cached, ()).computed for s in passes]
    longest: dict[int, int] = {}
    for s, elements in zip(passes, computed, strict=True):
        for i, _ in elements:
            longest[i] = max(longest.get(i, 0), _computed(s))
    for i in sorted(longest, reverse=True):
        if _is_worth_it(shape, i, longest[i]):
            read = [(k, e) for k, elements in enumerate(computed) for e in elements if e[0] == i]
            if all(_is_own(shape, e) for _, e in read):
                yield i, read[0][0]


def _computed(row_pass: RowPass) -> int:
    """Return how many times a row a pass computes what differs from place to place."""
    match row_pass:
        case LoopPass():
            return row_pass.size
        case InnerReducePass():
            return row_pass.size * prod(row_pass.reduced)
    return 0


def _is_worth_it(shape: PatternView, i: int, size: int) -> bool:
    if shape.graph[i].op not in HEAVY or i not in shape.pattern.bindings:
        return False
    return 1 < shape.places(i) <= size // LEAST_AGAIN


def _is_own(shape: PatternView, element: Element) -> bool:
    i, index = element
    return position_in(shape.pattern.bindings[i], shape.row, index) is not None
