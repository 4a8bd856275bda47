"""Masks: truths that leave nothing of the terms of a reduction where they do not hold, so that tiles can be skipped."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from msgspec import Struct

from jax_stitch.analysis.maps import known_choice
from jax_stitch.fusion.streams.separation import Form, Kind, constant
from jax_stitch.fusion.streams.stream import MOVES, Key, Stream
from jax_stitch.fusion.streams.tiling import Tiling
from jax_stitch.graph.combiners import combines_by
from jax_stitch.ir.indices import Expr, const, var

_MOST = 8
"""Tiles along each axis that are looked at for an estimate."""


class Mask(Struct, frozen=True):
    """Where ``truth`` does not hold, a term changes nothing: if exponentials of ``fill`` are zero by what the row has
    reached (None: zero as it is), or by the values ``less`` that are subtracted from it, and ``finite`` values are.
    """

    truth: Key
    fill: float | None
    less: Key | None = None
    finite: tuple[Key, ...] = ()


def mask_of(stream: Stream, known: Mapping[Key, Form], reduction: Key) -> Mask | None:
    """Return the mask of a maximum, or of a sum; None where there is none."""
    node, operands = stream.graph[reduction.node], stream.operands[reduction]
    if node.op == "reduce" and combines_by(node.graphs["to_apply"], 0) == "maximum":
        return _filled(stream, known, operands[0])
    if node.op == "reduce" and combines_by(node.graphs["to_apply"], 0) != "add":
        return None
    terms = [o for o in operands if o in stream.operands]
    if len(terms) != 1:
        return None
    (term,) = terms
    exponent = known[term].exponent
    if exponent is None:
        return _zero(stream, known, term)
    return _filled(stream, known, exponent) if is_exponential(stream, known, term) else None


def is_exponential(stream: Stream, known: Mapping[Key, Form], key: Key) -> bool:
    """Return whether a scaled value is an exponential, times numbers that are finite."""
    node, operands = stream.graph[key.node], stream.operands[key]
    if node.op == "exponential":
        return True
    scaled = [o for o in operands if known[o].kind is Kind.SCALED]
    others = [o for o in operands if known[o].kind is Kind.FREE]
    if node.op == "select":
        others = others[1:]
    plain = all(_is_finite(stream, o) for o in others)
    return len(scaled) == 1 and plain and is_exponential(stream, known, scaled[0])


def _is_finite(stream: Stream, key: Key) -> bool:
    """Return whether a value is one finite number other than zero everywhere: zero times it, or over it, is zero."""
    number = constant(stream.graph, key.node)
    return number is not None and isfinite(number) and number != 0


def _filled(stream: Stream, known: Mapping[Key, Form], key: Key) -> Mask | None:
    """Return the mask of an exponent, whose free part is looked at alone."""
    while key in stream.operands:
        node, operands = stream.graph[key.node], stream.operands[key]
        if node.op == "select" and known[operands[0]].kind is Kind.FREE:
            fill = constant(stream.graph, operands[2].node)
            return None if fill is None or fill > 0 else Mask(operands[0], fill)
        free = [o for o in operands if known[o].kind is not Kind.ROW]
        if node.op not in ("add", "subtract", *MOVES) or len(free) != 1:
            return None
        if node.op == "subtract" and free[0] != operands[0]:
            return None
        (key,) = free
    return None


def _zero(stream: Stream, known: Mapping[Key, Form], key: Key) -> Mask | None:
    """Return the mask of a free term, which is zero where that does not hold; None where there is none."""
    operands = stream.operands.get(key)
    if operands is None:
        return None
    match stream.graph[key.node].op:
        case "broadcast" | "reshape" | "transpose" | "convert" | "negate":
            return _zero(stream, known, operands[0])
        case "select" if constant(stream.graph, operands[2].node) == 0:
            return Mask(operands[0], None)
        case "multiply":
            for one, other in (operands, operands[::-1]):
                mask = _zero(stream, known, one)
                if mask is not None and _is_finite(stream, other):
                    return mask
                if mask is not None and (small := _small(stream, other)) is not None:
                    return Mask(mask.truth, mask.fill, mask.less, (*mask.finite, small))
        case "exponential" if operands[0] in stream.operands:
            less, (left, *right) = stream.graph[operands[0].node], stream.operands[operands[0]]
            mask = _filled(stream, known, left) if less.op == "subtract" else None
            small = _small(stream, right[0]) if right else None
            if mask is not None and small is not None:
                return Mask(mask.truth, mask.fill, small)
    return None


def _small(stream: Stream, key: Key) -> Key | None:
    """Return the value that one is broadcast from, along the axis or beside it."""
    node = stream.graph[key.node]
    if node.op == "broadcast" and key in stream.operands:
        return stream.operands[key][0]
    return None if stream.has_axis(key) and key in stream.operands else key


def share_of_tiles(stream: Stream, tiling: Tiling, known: Mapping[Key, Form]) -> float:
    """Return about which share of all tiles the masks of a stream leave something of."""
    truths = {mask.truth for r in stream.reductions if (mask := mask_of(stream, known, r)) is not None}
    left = tried = 0
    for tile in _some(tiling.tiles):
        for step in _some(tiling.steps):
            indices = ((stream.graph[t.node], _index(t, tiling, tile, step)) for t in truths)
            left += any(known_choice(stream.graph, node, index) is not False for node, index in indices)
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
