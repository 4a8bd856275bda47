"""Loops along a dimension of a value, of a fixed or a found number of steps, whose bodies are random programs too.

Of floats a step brings two carries nearer to each other, or adds or compares, so that errors have a bound.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tests.drawn.generator import Generator
from tests.drawn.values import FLOATS, Value

LONGEST = 40


def loop(g: Generator, v: Value) -> None:
    """A scan along ``v``, a loop that counts, or one that ends when its data says so."""
    rng = g.rng
    axes = [d for d, n in enumerate(v.shape) if n <= LONGEST]
    if not axes or v.most > 50:
        return
    axis = rng.choice(axes)
    _, body, y, carried = body_of(g, v, axis)
    steps = v.shape[axis]
    first = replace(carried, most=0.0, fraction=0, error=0.0)
    if v.dtype in FLOATS:
        text, last = _step(g, y, first, steps)
    else:
        text, last = f"lax.{'bitwise_xor' if v.dtype == 'pred' else 'add'}({y.name}, c)", carried
    if last.most > 1000 or last.error > 0.05 * max(last.most, 1e-9):
        return
    write(g, v, axis, body.lines, text, last, y)


def body_of(g: Generator, v: Value, axis: int) -> tuple[Value, Generator, Value, Value]:
    """What a loop along ``v`` does with its slice ``x`` in a step: ``x``, the lines, the last value of its type, and
    the carried value.
    """
    rng, shape = g.rng, (*v.shape[:axis], *v.shape[axis + 1 :])
    x = replace(v, name="x", shape=shape)
    body = Generator(rng, g.inner, (), max_size=g.max_size, prefix="w", outer=g)
    body.values, body.base = [x], shape
    carried = replace(x, name="c")
    if v.dtype not in FLOATS:
        body.values.append(carried)
    body.grow(rng.choice((1, 2, 3, 5)))
    found = [w for w in body.values if (w.dtype, w.shape) == (x.dtype, x.shape) and w.name != "c"]
    return x, body, found[-1], carried


def _step(g: Generator, y: Value, first: Value, steps: int) -> tuple[str, Value]:
    """A float carry's next value, and what is known of it after all steps."""
    dtype, unit = y.dtype, 2.0 ** -FLOATS[y.dtype]
    kind = g.rng.choice(("half", "half", "tanh", "max", "add"))
    if kind == "max":
        return f"lax.max(c, {y.name})", replace(first, most=max(first.most, y.most), fraction=y.fraction, error=y.error)
    half, quarter = g.scalar(dtype, 0.5), g.scalar(dtype, 0.25)
    if kind == "add":
        most = max(steps * y.most, 1e-9)
        exact = y.exact and math.log2(most) + y.fraction <= FLOATS[dtype]
        error = 0.0 if exact else steps * (y.error + unit * most)
        return f"c + {y.name}", replace(first, most=most, fraction=y.fraction, error=error)
    if kind == "half":
        most = 2 * y.most + 1e-9
        return f"c * {half} + {y.name}", replace(first, most=most, fraction=0, error=2 * (y.error + 3 * unit * most))
    most = 2 * (y.most + 0.25)
    text = f"c * {half} + lax.tanh(c) * {quarter} + {y.name}"
    return text, replace(first, most=most, fraction=0, error=4 * (y.error + 6 * unit * (most + 1)))


def write(g: Generator, v: Value, axis: int, lines: list[str], text: str, last: Value, y: Value) -> None:
    """The loop's lines, and its results as values of the program."""
    rng = g.rng
    k, steps = len(g.lines), v.shape[axis]
    shape, kind = last.shape, rng.choice(g.loops)
    zero = f"jnp.zeros({shape}, D['{v.dtype}'])"
    known = {"most": last.most, "fraction": last.fraction, "error": last.error}
    g.lines += [f"def body{k}(c, x):", *(f"    {line}" for line in lines)]
    if kind == "scan":
        g.lines += [f"    w = {text}", f"    return w, ({rng.choice(('w', y.name))})"]
        of_y = g.lines[-1].endswith(f"({y.name})")
        along, back = f"jnp.moveaxis({v.name}, {axis}, 0)", rng.random() < 0.3
        g.lines.append(f"done{k} = lax.scan(body{k}, {zero}, {along}, reverse={back})")
        g.add(f"done{k}[0]", last, shape=shape, **known)
        more = {"most": y.most, "fraction": y.fraction, "error": y.error} if of_y else known
        if rng.random() < 0.6:
            g.add(f"done{k}[1]", last, shape=(steps, *shape), **more)
        return
    g.lines.append(f"    return {text}")
    at = f"lax.dynamic_index_in_dim({v.name}, i, {axis}, keepdims=False)"
    if kind == "fori":
        g.add(f"lax.fori_loop(0, {steps}, lambda i, c: body{k}(c, {at}), {zero})", last, shape=shape, **known)
        return
    counts = [p for p in g.values if p.dtype in ("s32", "s64") and not p.shape]
    limit = f"lax.clamp(0, {rng.choice(counts).name}.astype(int), {steps})" if counts else str(rng.randrange(steps + 1))
    cond, step = f"lambda s: s[0] < {limit}", f"lambda s: (s[0] + 1, body{k}(s[1], {at.replace(' i,', ' s[0],')}))"
    g.add(f"lax.while_loop({cond}, {step}, (0, {zero}))[1]", last, shape=shape, **known)
