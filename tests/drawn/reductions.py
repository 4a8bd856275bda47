"""Reductions and scans, alone and with their results back at what went into them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.drawn.elementwise import binary
from tests.drawn.generator import Generator, placed
from tests.drawn.values import FLOATS, Value


def _kept(v: Value, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(d for k, d in enumerate(v.shape) if k not in axes)


def reduce(g: Generator, v: Value) -> Value | None:
    rng = g.rng
    axes = tuple(d for d in range(len(v.shape)) if rng.random() < 0.5) or tuple(range(len(v.shape)))[-1:]
    n = math.prod(v.shape[d] for d in axes)
    shape = _kept(v, axes)
    if v.dtype == "pred":
        return g.add(f"lax.reduce_{rng.choice(('and', 'or', 'xor'))}({v.name}, {axes})", v, shape=shape)
    kinds = ["sum", "sum", "sum", "max", "min"]
    if v.dtype not in FLOATS:
        kinds += ["and", "or", "xor", "prod", "own"]
    kind = rng.choice(kinds)
    if kind == "own":  # (1 + a)(1 + b) - 1: associative, but no single operation.
        zero = g.scalar(v.dtype, 0)
        return g.add(f"lax.reduce({v.name}, {zero}, lambda a, b: a * b + a + b, {axes})", v, shape=shape)
    changes: dict[str, Any] = {"shape": shape}
    if kind == "sum" and v.dtype in FLOATS:
        most = v.most * n
        unit = 2.0 ** -FLOATS[v.dtype]
        changes |= {"most": most, "error": 0.0 if v.exact else n * v.error + n * unit * most}
        if v.exact and math.log2(max(most, 1e-9)) + v.fraction > FLOATS[v.dtype]:
            changes["error"] = n * unit * most
    return g.add(f"lax.reduce_{kind}({v.name}, {axes})", v, **changes)


def scan(g: Generator, v: Value) -> None:
    """Accumulated along one dimension, from either end."""
    rng = g.rng
    if not v.shape or v.dtype == "pred":
        return
    axis = rng.randrange(len(v.shape))
    kind = rng.choice(("sum", "sum", "max", "min", *(("prod",) if v.dtype not in FLOATS else ())))
    changes: dict[str, Any] = {}
    if kind == "sum" and v.dtype in FLOATS:
        n, unit = v.shape[axis], 2.0 ** -FLOATS[v.dtype]
        most = v.most * n
        changes |= {"most": most, "error": 0.0 if v.exact else n * v.error + n * unit * most}
        if v.exact and math.log2(max(most, 1e-9)) + v.fraction > FLOATS[v.dtype]:
            changes["error"] = n * unit * most
    g.add(f"lax.cum{kind}({v.name}, {axis}, reverse={rng.random() < 0.4})", v, **changes)


def reduce_several(g: Generator, v: Value) -> None:
    """A reduction with two operands: the place of the largest value, or two sums at once."""
    rng = g.rng
    if not v.shape:
        return
    axis = rng.randrange(len(v.shape))
    shape = _kept(v, (axis,))
    if v.exact and v.dtype != "pred" and rng.random() < 0.6:
        to = rng.choice(("s32", "s64", "u8" if v.shape[axis] < 200 else "u32"))
        kind = rng.choice(("argmax", "argmin"))
        g.add(f"lax.{kind}({v.name}, {axis}, D['{to}'])", v, shape=shape, dtype=to)
    elif v.dtype[0] in "su":
        w = g.partner(v)
        if w is not None:
            zero = g.scalar(v.dtype, 0)
            both = "lambda a, b: (a[0] + b[0], lax.max(a[1], b[1]))"
            text = f"lax.reduce(({v.name}, {w.name}), ({zero}, {zero}), {both}, ({axis},))"
            g.add(f"{text}[{rng.randrange(2)}]", v, shape=shape)


def normalise(g: Generator, v: Value) -> None:
    """A reduction, and its result back at every element that went into it."""
    rng = g.rng
    before = len(g.lines)
    r = reduce(g, v)
    if r is None or len(g.lines) == before or r.dtype != v.dtype or not v.shape:
        return
    places = placed(r.shape, v.shape)
    if not places:
        return
    b = g.add(f"lax.broadcast_in_dim({r.name}, {v.shape}, {rng.choice(places)})", r, shape=v.shape)
    if b is not None:
        g.values.append(v)  # As a recent value, so that the two meet.
        binary(g, b)
