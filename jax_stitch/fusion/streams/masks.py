"""Masks: truths that leave of an exponent what they fill it with, so that whole tiles add nothing to sums."""

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


class Mask(Struct, frozen=True):
    """Where ``truth`` does not hold, an exponent is ``fill``."""

    truth: Key
    fill: float


def mask_of(region: Region, known: Mapping[Key, Form], reduction: Key) -> Mask | None:
    """Return the mask of a maximum, or of a sum of exponentials times numbers; None where there is none."""
    node, operands = region.graph[reduction.node], region.operands[reduction]
    if node.op == "reduce" and combines_by(node.graphs["to_apply"], 0) == "maximum":
        return _filled(region, known, operands[0])
    term = next((o for o in operands if known[o].exponent is not None), None)
    if term is None or (node.op == "dot" and all(o in region.operands for o in operands)):
        return None
    exponent = known[term].exponent
    assert exponent is not None
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
        if node.op not in ("add", "subtract", "broadcast", "reshape", "transpose") or len(free) != 1:
            return None
        if node.op == "subtract" and free[0] != operands[0]:
            return None
        (key,) = free
    return None


def share_of_tiles(region: Region, tiling: Tiling, known: Mapping[Key, Form]) -> float:
    """Return about which share of all tiles the masks of a region leave something of."""
    masks = {mask for r in region.reductions if (mask := mask_of(region, known, r)) is not None}
    left = tried = 0
    for tile in _some(tiling.tiles):
        for step in _some(tiling.steps):
            tried += 1
            left += any(
                known_choice(region.graph, region.graph[m.truth.node], _index(m.truth, tiling, tile, step)) is not False
                for m in masks
            )
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
