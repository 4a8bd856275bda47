"""Strides along lanes that a host's compiler must not know.

GCC takes the elements of a loop's vectors that lie a constant distance apart for a group: it loads all that is between
them too and permutes vectors, of a distance of 256 elements 256 of them for each element that is used; of some groups
it makes no vectors at all. Where the distance is a variable, it loads the elements one by one, which is what is wanted,
and the rest of the loop is vectors. Measured with GCC 12, vectors of 256 and 512 bits, 1 to 64 elements apart: only
where few elements are between, or most of them are used, is the group faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import TypeVar

from msgspec import Struct

from jax_stitch.ir.indices.expr import Expr, Var
from jax_stitch.ir.indices.variables import PLACE, ROW
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element
from jax_stitch.kernel.model import Kernel, Part, RowShape
from jax_stitch.kernel.walk import map_bodies, map_nodes, nodes
from jax_stitch.util.values import replace

Loop = TypeVar("Loop", bound=Struct)

NEAR = 4
"""The longest distance at which a group is always faster than its elements one by one."""

GROUPED = (8, 16)
"""Longer distances at which it is, where more than half of the elements between are used."""


def hide_strides(kernel: Kernel) -> Kernel:
    """Return the kernel with the elements marked whose stride along the lanes is to be a variable of the text."""
    return replace(kernel, parts=tuple(map(_part, kernel.parts)))


def _part(part: Part) -> Part:
    rows = isinstance(part.shape, RowShape) and not part.shape.lanes_fastest
    return replace(part, body=_body(part.body, ROW if rows else PLACE))


def _body(body: st.Body, place: str) -> st.Body:
    """Return statements with their elements marked; ``place`` counts the lanes of passes over the places of rows."""
    return tuple(_statement(s, place) for s in body)


def _statement(s: st.Statement, place: str) -> st.Statement:
    match s:
        case st.Rows():
            return _marked(s, ROW)
        case st.Pass() | st.ScanPass():
            return _marked(s, place)
        case st.Items():
            return replace(s, body=_marked(s, s.lane.variable).body)  # Squares load lines.
        case st.Sums() if s.split == 1:
            return _marked(s, s.lane.variable)
        case st.Sums():
            return replace(s, steps=tuple(_marked(steps, steps.term.variable) for steps in s.steps))
    return map_bodies(s, lambda body: _body(body, place))


def _marked(s: Loop, lane: str) -> Loop:
    """Return a loop with the elements marked that are far apart along the lanes, which ``lane`` counts."""
    used: dict[tuple[str, Expr], set[int]] = defaultdict(set)
    for n in nodes(s):
        if isinstance(n, Element) and abs(_stride(n.at, lane)) > NEAR:
            used[_group(n)].add(n.at.offset)
    if not used:
        return s

    def mark(e: Element) -> Element:
        stride = abs(_stride(e.at, lane))
        return replace(e, hidden=stride) if _is_hidden(stride, used.get(_group(e), ())) else e

    made: Loop = map_nodes(s, Element, mark)
    return made


def _group(e: Element) -> tuple[str, Expr]:
    """Return what elements a constant distance apart have in common."""
    return e.array, e.at - e.at.offset


def _stride(at: Expr, lane: str) -> int:
    return sum(c for atom, c in at.terms if isinstance(atom, Var) and atom.name == lane)


def _is_hidden(stride: int, used: Collection[int]) -> bool:
    if stride <= NEAR:
        return False
    return stride not in GROUPED or 2 * len(used) <= stride
