"""Values that are other values side by side, and can be written piece by piece: concatenations, the sum of what slices
of one array lead back to, each padded to its size, and what a scan by halves puts together, where two arrays meet like
the teeth of two combs.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from jax_stitch.graph.model import Graph, Node

MOST_PORTIONS = 16
"""Arrays that are looked at as the pieces of one sum."""


class Portion(Struct, frozen=True):
    """An operand, along which dimension it is a piece, and its places there: ``start``, ``start + step``, ..."""

    node: int
    axis: int
    start: int
    step: int


def combs(body: Graph, node: Node) -> tuple[Portion, ...] | None:
    """Return the arrays whose elements, spread apart and padded with zeros, make up a sum without meeting anywhere."""
    if node.op != "add" or node.tensor.dtype[0] not in "fb":
        return None
    pads = _summands(body, node)
    if len(pads) > MOST_PORTIONS or any(p.op != "pad" for p in pads):
        return None
    ways = list(zip(*(p.attributes["padding"] for p in pads), strict=True))
    axes = [d for d, way in enumerate(ways) if any(way_ != (0, 0, 0) for way_ in way)]
    if len(axes) != 1 or not all(_is_zero(body, p.operands[1]) for p in pads):
        return None
    (axis,) = axes
    portions, covered = [], list[int]()
    for pad in pads:
        low, high, interior = pad.attributes["padding"][axis]
        if low < 0 or high < 0:
            return None
        size = body[pad.operands[0]].tensor.dims[axis]
        covered += range(low, low + size * (interior + 1), interior + 1)
        portions.append(Portion(pad.operands[0], axis, low, interior + 1))
    if sorted(covered) != list(range(node.tensor.dims[axis])):
        return None
    return tuple(portions)


def _summands(body: Graph, node: Node) -> list[Node]:
    """Return the summands of a sum, and of the sums that it is made of."""
    summands: list[Node] = []
    waiting = [node.id]
    while waiting and len(summands) <= MOST_PORTIONS:
        here = body[waiting.pop()]
        if here.op == "add":
            waiting += here.operands
        else:
            summands.append(here)
    return summands


def joined(body: Graph, node: Node) -> Iterator[Portion]:
    """Yield the operands of a concatenation."""
    (axis,) = node.attributes["dimensions"]
    start = 0
    for o in node.operands:
        yield Portion(o, axis, start, 1)
        start += body[o].tensor.dims[axis]


def _is_zero(body: Graph, i: int) -> bool:
    """Return whether a value is zero, and not the one below zero: that would leave a zero below zero as it is."""
    literal = body[i].literal
    return literal is not None and literal.size == 1 and literal.tobytes() == bytes(literal.itemsize)
