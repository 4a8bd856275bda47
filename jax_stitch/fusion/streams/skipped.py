"""Tiles that change nothing of what a loop carries, since masks leave nothing of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from jax_stitch.fusion.streams.body import TileBody
from jax_stitch.fusion.streams.masks import Mask, mask_of
from jax_stitch.fusion.streams.stream import MOVES, Key, Stream

_LINEAR = MOVES | {"iota", "constant", "add", "subtract", "negate", "convert"}


def changes(body: TileBody) -> int | None:
    """Return for each row whether a tile may change something; None where that is always so.

    A tile changes nothing if its masks leave no exponent but their fills, and if exponentials of these are zero by what
    the row has reached, and zeros are multiplied by numbers: times infinity or NaN they are NaN.
    """
    masks, t, truths = dict[tuple[Mask, int], None](), body.tiles, list[int]()
    for key, made in body.sums.items():
        mask = mask_of(body.stream, body.known, key)
        if mask is None:
            return None
        masks[mask, made.running if made.scale is None else made.scale] = None
        if body.stream.graph[key.node].op == "dot":
            (other,) = (o for o in body.stream.operands[key] if o not in body.stream.operands)
            truths.append(_is_infinite(body, body.with_rows(body.leaf(other), other)))
    for truth in dict.fromkeys(mask.truth for mask, _ in masks):
        truths.append(_any(body, truth))
    for mask, number in masks:
        truths += _unless_zero(body, mask, body.running[number].before)
    rows = (t.tiling.rows,)
    return reduce(lambda a, b: t.each("or", a, b), (t.spread(i, rows, ()) for i in dict.fromkeys(truths)))


def _unless_zero(body: TileBody, mask: Mask, reached: int) -> Iterator[int]:
    """Yield for each row whether what a mask fills with is not zero after all."""
    t = body.tiles
    for key in mask.finite:
        yield _is_infinite(body, body.with_rows(body.free(key), key))
    if mask.fill is None or (mask.fill == -np.inf and mask.less is None):
        return
    less = reached if mask.less is None else body.with_rows(body.free(mask.less), mask.less)
    least = t.each("exponential", t.each("subtract", t.like(less, mask.fill), less))
    yield _inside(body, t.compared(least, "NE", t.like(least, 0.0)))


def _is_infinite(body: TileBody, i: int) -> int:
    """Return for each row whether a value has infinities or NaN."""
    t = body.tiles
    zeros = t.each("multiply", i, t.like(i, 0.0))
    if len(t.type(zeros).dims) > 2:
        zeros = t.combined("add", zeros)  # Along memory first.
    if len(t.type(zeros).dims) > 1:
        zeros = t.combined("add", zeros)
    return t.compared(zeros, "NE", t.like(zeros, 0.0))


def _inside(body: TileBody, i: int) -> int:
    """Return for each row whether a truth holds in a tile."""
    t = body.tiles
    return t.combined("or", i, range(1, len(t.type(i).dims))) if len(t.type(i).dims) > 1 else i


def _any(body: TileBody, key: Key) -> int:
    """Return for each row, or for all, whether a truth holds somewhere in a tile; perhaps also where it does not."""
    node, t = body.stream.graph[key.node], body.tiles
    operands = body.stream.operands.get(key, ())
    if node.op in MOVES and operands:
        return _any(body, operands[0])
    if node.op in ("and", "or") and operands:
        a, b = (_any(body, o) for o in operands)
        dims = max(t.type(a).dims, t.type(b).dims)
        return t.each(node.op, *(t.spread(i, dims, ()) for i in (a, b)))
    i, has = body.free(key), body.shape(key)
    inside = range(int(has[0]), sum(has))
    ordered = node.op == "compare" and node.attributes["direction"] not in ("EQ", "NE")
    if ordered and _is_linear(body.stream, operands):
        i = t.corners(i, inside)
    return t.combined("or", i, inside) if inside else i


def _is_linear(stream: Stream, keys: Sequence[Key]) -> bool:
    """Return whether values are indices, constants, and sums of them: extrema are at the corners of a tile."""
    waiting = list(keys)
    while waiting:
        key = waiting.pop()
        node = stream.graph[key.node]
        if node.op not in _LINEAR or node.tensor.dtype not in ("s32", "s64"):
            return False
        waiting += stream.operands.get(key, ())
    return True
