"""Values that are other values side by side, and can be written piece by piece: concatenations, and what a scan by
halves puts together, where two arrays meet like the teeth of two combs.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from jax_stitch.graph.model import Graph, Node


class Portion(Struct, frozen=True):
    """An operand, along which dimension it is a piece, and its places there: ``start``, ``start + step``, ..."""

    node: int
    axis: int
    start: int
    step: int


def combs(body: Graph, node: Node) -> tuple[Portion, Portion] | None:
    """The two arrays whose elements, spread apart and padded with zeros, make up a sum without meeting anywhere."""
    if node.op != "add" or any(body[o].op != "pad" for o in node.operands) or node.tensor.dtype[0] not in "fb":
        return None
    pads = [body[o] for o in node.operands]
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
    return portions[0], portions[1]


def joined(body: Graph, node: Node) -> Iterator[Portion]:
    """The operands of a concatenation."""
    (axis,) = node.attributes["dimensions"]
    start = 0
    for o in node.operands:
        yield Portion(o, axis, start, 1)
        start += body[o].tensor.dims[axis]


def _is_zero(body: Graph, i: int) -> bool:
    """Whether a value is zero, and not the one below zero: that would leave a zero below zero as it is."""
    literal = body[i].literal
    return literal is not None and literal.size == 1 and literal.tobytes() == bytes(literal.itemsize)
