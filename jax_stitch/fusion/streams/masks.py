"""Masks: truths that leave nothing of the terms of a reduction where they do not hold, so that tiles can be skipped."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from jax_stitch.analysis.maps import known_choice
from jax_stitch.fusion.streams.region import Key, Region
from jax_stitch.fusion.streams.separation import Form, Kind, constant
from jax_stitch.fusion.streams.tiling import Tiling
from jax_stitch.graph.combiners import combines_by
from jax_stitch.indices import Expr, const, var

_MOST = 8
"""Tiles along each axis that are looked at for an estimate."""

_MOVES = ("broadcast", "reshape", "transpose")


class Mask(Struct, frozen=True):
    """Where ``truth`` does not hold, a term changes nothing: if exponentials of ``fill`` are zero by what the row has
    reached (None: zero as it is), or by the values ``less`` that are subtracted from it, and ``finite`` values are.
    """

    truth: Key
    fill: float | None
    less: Key | None = None
    finite: tuple[Key, ...] = ()


def mask_of(region: Region, known: Mapping[Key, Form], reduction: Key) -> Mask | None:
    """Return the mask of a maximum, or of a sum; None where there is none."""
    node, operands = region.graph[reduction.node], region.operands[reduction]
    if node.op == "reduce" and combines_by(node.graphs["to_apply"], 0) == "maximum":
        return _filled(region, known, operands[0])
    if node.op == "reduce" and combines_by(node.graphs["to_apply"], 0) != "add":
        return None
    terms = [o for o in operands if o in region.operands]
    if len(terms) != 1:
        return None
    (term,) = terms
    exponent = known[term].exponent
    if exponent is None:
        return _zero(region, known, term)
    return _filled(region, known, exponent) if is_exponential(region, known, term) else None


def is_exponential(region: Region, known: Mapping[Key, Form], key: Key) -> bool:
    """Return whether a scaled value is an exponential, times numbers that are finite."""
    node, operands = region.graph[key.node], region.operands[key]
    if node.op == "exponential":
        return True
    scaled = [o for o in operands if known[o].kind is Kind.SCALED]
    others = [o for o in operands if known[o].kind is Kind.FREE]
    if node.op == "select":
        others = others[1:]
    plain = all(constant(region.graph, o.node) is not None for o in others)
    return len(scaled) == 1 and plain and is_exponential(region, known, scaled[0])


def _filled(region: Region, known: Mapping[Key, Form], key: Key) -> Mask | None:
    """Return the mask of an exponent, whose free part is looked at alone."""
    while key in region.operands:
        node, operands = region.graph[key.node], region.operands[key]
        if node.op == "select" and known[operands[0]].kind is Kind.FREE:
            fill = constant(region.graph, operands[2].node)
            return None if fill is None or fill > 0 else Mask(operands[0], fill)
        free = [o for o in operands if known[o].kind is not Kind.ROW]
        if node.op not in ("add", "subtract", *_MOVES) or len(free) != 1:
            return None
        if node.op == "subtract" and free[0] != operands[0]:
            return None
        (key,) = free
    return None


def _zero(region: Region, known: Mapping[Key, Form], key: Key) -> Mask | None:
    """Return the mask of a free term, which is zero where that does not hold."""
    node, operands = region.graph[key.node], region.operands.get(key, ())
    match node.op:
        case "broadcast" | "reshape" | "transpose" | "convert" | "negate" if operands:
            return _zero(region, known, operands[0])
        case "select" if constant(region.graph, operands[2].node) == 0:
            return Mask(operands[0], None)
        case "multiply":
            for one, other in (operands, operands[::-1]):
                mask = _zero(region, known, one) if one in region.operands else None
                if mask is not None and constant(region.graph, other.node) is not None:
                    return mask
                if mask is not None and (small := _small(region, other)) is not None:
                    return Mask(mask.truth, mask.fill, mask.less, (*mask.finite, small))
        case "exponential" if operands[0] in region.operands:
            less, (left, *right) = region.graph[operands[0].node], region.operands[operands[0]]
            mask = _filled(region, known, left) if less.op == "subtract" else None
            small = _small(region, right[0]) if right else None
            if mask is not None and small is not None:
                return Mask(mask.truth, mask.fill, small)
    return None


def _small(region: Region, key: Key) -> Key | None:
    """Return the value that one is broadcast from, along the axis or beside it."""
    node = region.graph[key.node]
    if node.op == "broadcast" and key in region.operands:
        return region.operands[key][0]
    return None if region.has_axis(key) and key in region.operands else key


def share_of_tiles(region: Region, tiling: Tiling, known: Mapping[Key, Form]) -> float:
    """Return about which share of all tiles the masks of a region leave something of."""
    truths = {mask.truth for r in region.reductions if (mask := mask_of(region, known, r)) is not None}
    left = tried = 0
    for tile in _some(tiling.tiles):
        for step in _some(tiling.steps):
            indices = ((region.graph[t.node], _index(t, tiling, tile, step)) for t in truths)
            left += any(known_choice(region.graph, node, index) is not False for node, index in indices)
            tried += 1
    return left / tried


def _some(count: int) -> list[int]:
    return sorted({k * count // _MOST for k in range(_MOST)})


def _index(key: Key, tiling: Tiling, tile: int, step: int) -> tuple[Expr, ...]:
    """Return the index of any element of a tile of the first row."""
    index: list[Expr] = []
    for dim in key.binding:
        i: Expr = const(0)
        for f in tiling.parts((dim,)):
            digit: Expr = const(0)
            if f == tiling.axis:
                digit = var("k", low=step * tiling.step, high=(step + 1) * tiling.step - 1)
            elif f == tiling.lane:
                digit = var("q", low=tile * tiling.lanes, high=(tile + 1) * tiling.lanes - 1)
            i = i * f.size + digit
        index.append(i)
    return tuple(index)
