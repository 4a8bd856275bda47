"""Loops that run in the threads of one kernel, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from jax_stitch.analysis.binding import Binding
from jax_stitch.analysis.maps import Index
from jax_stitch.graph.model import Graph
from jax_stitch.ir.indices import Expr, const

UNKNOWN_TRIPS = 64
"""Iterations that estimates count for a loop of unknown length."""

LIKELY_SHARE = "likely_share"
"""Attribute of a loop that changes nothing in some of its iterations: the share of the others."""

LIKELY_TRIPS = "likely_trips"
"""Attribute of such a loop of which more is known."""


class Carried(Struct, frozen=True):
    """A value carried from one iteration to the next, all as nodes of the flat graph."""

    parameter: int
    next: int
    initial: int
    result: int


class Stacked(Struct, frozen=True):
    """An array of which every iteration writes one slice: the slice, where it starts, and the array."""

    update: int
    starts: Index
    result: int


class NestedLoop(Struct, frozen=True):
    """One loop: run ``trips`` times or, where that is ``None``, while ``condition`` holds (for a row)."""

    number: int
    parent: int | None
    """The loop around it."""
    node: int
    """The ``while`` of the outer graph that it is, or is part of."""
    step: str
    """The variable that counts its iterations from 0."""
    trips: int | None
    condition: int | None
    carried: tuple[Carried, ...]
    stacked: tuple[Stacked, ...]


class After(Struct, frozen=True):
    """An output written once the loops have ended: its elements in a row."""

    node: int
    indices: tuple[Index, ...]
    uniform: bool


class During(Struct, frozen=True):
    """An output of which every iteration of a loop writes a part: the elements in a row, in terms of the loop's
    counter.
    """

    node: int
    indices: tuple[Index, ...]
    uniform: bool
    loop: int


Output = After | During


UNROLLED = 128
"""Elements of an iteration of a loop that is unrolled, after unrolling."""


@dataclass(frozen=True, eq=False)
class Nest:
    """Loops that run in the threads of one kernel, one row each, and what is done around them.

    ``graph`` is flat (see ``nest``) and complete in itself; of its nodes outside bodies the kernel computes ``inside``,
    reads ``inputs`` and writes ``outputs``, in the order of the pattern's inputs and outputs. ``bindings`` are those of
    the carried values and of the conditions.
    """

    graph: Graph
    loops: tuple[NestedLoop, ...]
    inside: frozenset[int]
    rows: int
    bindings: Mapping[int, Binding]
    inputs: tuple[int, ...]
    outputs: tuple[Output, ...]
    elements: int
    """Computed per row, each once however often it is."""
    varying: tuple[float, float] = (0.0, 0.0)
    """The work of an iteration that each row does: of simple operations, and of divisions and functions."""
    uniform: tuple[float, float] = (0.0, 0.0)
    """The work that is the same for all rows, so that a thread does it once for those it has."""

    @property
    def unroll(self) -> int:
        """Return how many iterations are written as one: so many that loads of later ones are under way early, few
        enough for registers and for the instruction cache.
        """
        return max(1, min(8, 1 << (UNROLLED // max(1, self.elements)).bit_length() >> 1))

    @property
    def steps(self) -> int:
        """Return the iterations of the bodies, all loops together; 64 stand for an unknown number."""
        counts: dict[int, int] = {}
        for nested in self.loops:
            around = counts[nested.parent] if nested.parent is not None else 1
            counts[nested.number] = around * (UNKNOWN_TRIPS if nested.trips is None else nested.trips)
        return sum(counts.values())


RESULT = "loop-result"
"""The opcode of a loop's result: the last value carried, or the whole array of which each iteration wrote a slice."""


def slice_index(stack: Stacked, index: Index) -> Index | None:
    """Return where in this iteration's slice an element of a stacked array is, if it is in it."""
    inside: list[Expr] = []
    for start, i in zip(stack.starts, index, strict=True):
        if start.is_const:
            inside.append(i - start)
        elif i == start:
            inside.append(const(0))
        else:
            return None
    return tuple(inside)
