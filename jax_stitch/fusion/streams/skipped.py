"""Tiles that change nothing of what a loop carries, since masks leave nothing of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from jax_stitch.fusion.streams.body import TileBody
from jax_stitch.fusion.streams.masks import Mask, mask_of
from jax_stitch.fusion.streams.region import Key, Region

_LINEAR = frozenset({"iota", "constant", "broadcast", "reshape", "transpose", "add", "subtract", "negate", "convert"})


def changes(body: TileBody) -> int | None:
    """Return for each row whether a tile may change something; None where that is always so.

    A tile changes nothing if its masks leave no exponent but their fills, and if exponentials of these are zero by what
    the row has reached, and zeros are multiplied by numbers: times infinity or NaN they are NaN.
    """
    masks, t, truths = dict[Mask, int](), body.tiles, list[int]()
    for key, made in body.sums.items():
        mask = mask_of(body.region, body.known, key)
        if mask is None:
            return None
        masks[mask] = made.running if made.scale is None else made.scale
        if body.region.graph[key.node].op == "dot":
            truths.append(_is_infinite(body, key))
    for mask, number in masks.items():
        truths.append(_any(body, mask.truth))
        if mask.fill != -np.inf:
            reached = body.running[number].before
            least = t.each("exponential", t.each("subtract", t.like(reached, mask.fill), reached))
            truths.append(t.combined("or", t.compared(least, "NE", t.like(least, 0.0))))
    rows = (t.tiling.rows,)
    return reduce(lambda a, b: t.each("or", a, b), (t.spread(i, rows, ()) for i in truths))


def _is_infinite(body: TileBody, key: Key) -> int:
    """Return for each row whether the other factor of a sum of products has infinities or NaN."""
    t = body.tiles
    (other,) = (o for o in body.region.operands[key] if o not in body.region.operands)
    factor = body.with_rows(body.leaf(other), other)
    zeros = t.each("multiply", factor, t.like(factor, 0.0))
    zero = t.combined("add", zeros)  # Along memory first.
    if len(t.type(zero).dims) > 1:
        zero = t.combined("add", zero, range(1, len(t.type(zero).dims)))
    return t.compared(zero, "NE", t.like(zero, 0.0))


def _any(body: TileBody, key: Key) -> int:
    """Return for each row, or for all, whether a truth holds somewhere in a tile; perhaps also where it does not."""
    node, t = body.region.graph[key.node], body.tiles
    operands = body.region.operands.get(key, ())
    if node.op in ("broadcast", "reshape", "transpose") and operands:
        return _any(body, operands[0])
    if node.op in ("and", "or") and operands:
        a, b = (_any(body, o) for o in operands)
        dims = max(t.type(a).dims, t.type(b).dims)
        return t.each(node.op, *(t.spread(i, dims, ()) for i in (a, b)))
    i, has = body.free(key), body.shape(key)
    inside = range(int(has[0]), sum(has))
    ordered = node.op == "compare" and node.attributes["direction"] not in ("EQ", "NE")
    if ordered and _is_linear(body.region, operands):
        i = t.corners(i, inside)
    return t.combined("or", i, inside) if inside else i


def _is_linear(region: Region, keys: Sequence[Key]) -> bool:
    """Return whether values are indices, constants, and sums of them: extrema are at the corners of a tile."""
    waiting = list(keys)
    while waiting:
        key = waiting.pop()
        node = region.graph[key.node]
        if node.op not in _LINEAR or node.tensor.dtype not in ("s32", "s64"):
            return False
        waiting += region.operands.get(key, ())
    return True
