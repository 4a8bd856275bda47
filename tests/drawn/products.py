"""Matrix products, and loops whose carried values meet each other in every step: what teams of threads run."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.drawn.generator import Generator
from tests.drawn.loops import LONGEST, body_of, write
from tests.drawn.values import FLOATS, Value

COLUMNS = (1, 2, 3, 5, 8, 17, 24)


def _scaled(g: Generator, v: Value, most: float) -> tuple[str, float]:
    """A value's text, made so small that it is at most ``most``, and by what it was multiplied."""
    scale = 2.0 ** -max(math.ceil(math.log2(max(v.most, 1e-9) / most)), 0)
    return (v.name, 1.0) if scale == 1 else (f"{v.name} * {g.scalar(v.dtype, scale)}", scale)


def product(g: Generator, v: Value) -> None:
    """A value times another along one dimension of both; now and then for each element of a dimension of both."""
    rng = g.rng
    if v.dtype not in FLOATS or not v.shape:
        return
    a = rng.randrange(len(v.shape))
    n = v.shape[a]
    found = [p for p in g.values if p.dtype == v.dtype and n in p.shape]
    w = rng.choice(found) if rng.random() < 0.6 else g.late_input(v.dtype, rng.sample((n, rng.choice(COLUMNS)), 2))
    b = rng.choice([d for d, size in enumerate(w.shape) if size == n])
    same = [(i, j) for i, p in enumerate(v.shape) for j, q in enumerate(w.shape) if p == q and i != a and j != b]
    batch = [rng.choice(same)] if same and rng.random() < 0.5 else []
    kept = [v.shape[i] for i, _ in batch]
    kept += [d for i, d in enumerate(v.shape) if i != a and i not in [i for i, _ in batch]]
    kept += [d for j, d in enumerate(w.shape) if j != b and j not in [j for _, j in batch]]
    if math.prod(kept) * n > 40 * g.max_size or len(kept) > 5:
        return
    (x, s), (y, t) = _scaled(g, v, 4.0), _scaled(g, w, 16.0 / n)
    most = s * v.most * t * w.most * n
    fraction = v.fraction + w.fraction + round(-math.log2(s * t))
    error = n * (s * v.error * t * w.most + t * w.error * s * v.most)
    unit = 2.0 ** -FLOATS[v.dtype]
    if error or math.log2(max(most, 1e-9)) + fraction > FLOATS[v.dtype]:
        error += (n + 2) * unit * most
    dims = f"((({a},), ({b},)), ({tuple(i for i, _ in batch)}, {tuple(j for _, j in batch)}))"
    g.add(f"lax.dot_general({x}, {y}, {dims})", v, shape=tuple(kept), most=most, fraction=fraction, error=error)


def recurrence(g: Generator, v: Value) -> None:
    """A loop along ``v`` in which every element of a carried row goes into others of the next: by a product with the
    same weights, or by the largest or the sum of the row. All bring two carries nearer to each other.
    """
    rng = g.rng
    axes = [d for d, n in enumerate(v.shape) if n <= LONGEST]
    if v.dtype not in FLOATS or len(v.shape) < 2 or not axes or v.most > 50:
        return
    axis = rng.choice(axes)
    x, body, y, carried = body_of(g, v, axis)
    n, unit = x.shape[-1], 2.0 ** -FLOATS[v.dtype]
    first = replace(carried, most=0.0, fraction=0, error=0.0)
    most = 4 * y.most + 1e-9
    kind = rng.choice(("product", "product", "product", "largest", "sum"))
    half, quarter = g.scalar(v.dtype, 0.5), g.scalar(v.dtype, 0.25)
    if kind == "product":
        weights = g.late_input(v.dtype, (n, n))
        small = f"{weights.name} * {g.scalar(v.dtype, 2.0 ** -math.ceil(math.log2(2 * n * weights.most)))}"
        rows = len(x.shape) - 1
        text = f"lax.dot_general(c, {small}, ((({rows},), ({rng.randrange(2)},)), ((), ()))) + {y.name}"
        text = f"lax.tanh({text})" if rng.random() < 0.5 else text
    else:
        mean = f"c * {g.scalar(v.dtype, 2.0 ** -math.ceil(math.log2(n)))}"
        whole = "jnp.max(c, -1, keepdims=True)" if kind == "largest" else f"jnp.sum({mean}, -1, keepdims=True)"
        text = f"c * {half} + {whole} * {quarter} + {y.name}"
    last = replace(first, most=most, fraction=0, error=4 * (y.error + (n + 8) * unit * (most + 1)))
    if last.most > 1000 or last.error > 0.05 * last.most:
        return
    write(g, v, axis, body.lines, text, last, y)
