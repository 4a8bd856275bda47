"""Operations that move elements, and those that take them by index."""

from __future__ import annotations

from tests.drawn.generator import Generator
from tests.drawn.values import Value


def broadcast(g: Generator, v: Value) -> None:
    rng = g.rng
    if len(v.shape) < 4:
        k = rng.randrange(len(v.shape) + 1)
        shape = (*v.shape[:k], rng.choice((1, 2, 3, 5)), *v.shape[k:])
        dims = tuple(d + (d >= k) for d in range(len(v.shape)))
        g.add(f"lax.broadcast_in_dim({v.name}, {shape}, {dims})", v, shape=shape)


def reshape(g: Generator, v: Value) -> None:
    left, shape = v.size, []
    for _ in range(g.rng.choice((0, 1, 2, 3))):
        d = g.rng.choice([d for d in range(1, left + 1) if left % d == 0])
        shape.append(d)
        left //= d
    shape.insert(g.rng.randrange(len(shape) + 1), left)
    g.add(f"lax.reshape({v.name}, {tuple(shape)})", v, shape=tuple(shape))


def transpose(g: Generator, v: Value) -> None:
    order = g.rng.sample(range(len(v.shape)), len(v.shape))
    g.add(f"lax.transpose({v.name}, {tuple(order)})", v, shape=tuple(v.shape[d] for d in order))


def reverse(g: Generator, v: Value) -> None:
    dims = tuple(d for d in range(len(v.shape)) if g.rng.random() < 0.5)
    g.add(f"lax.rev({v.name}, {dims})", v)


def cut(g: Generator, v: Value) -> None:
    rng = g.rng
    start = [rng.randrange(d) if rng.random() < 0.5 else 0 for d in v.shape]
    limit = [rng.randrange(s, d) + 1 if rng.random() < 0.5 else d for s, d in zip(start, v.shape, strict=True)]
    step = [rng.choice((1, 1, 2, 3)) for _ in v.shape]
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(start, limit, step, strict=True))
    g.add(f"lax.slice({v.name}, {start}, {limit}, {step})", v, shape=shape)


def concatenate(g: Generator, v: Value) -> None:
    if not v.shape:
        return
    axis = g.rng.randrange(len(v.shape))
    rest = [
        p
        for p in g.values
        if p.dtype == v.dtype
        and len(p.shape) == len(v.shape)
        and all(a == b for d, (a, b) in enumerate(zip(p.shape, v.shape, strict=True)) if d != axis)
    ]
    parts = [v, *(g.rng.choice(rest) for _ in range(g.rng.choice((1, 1, 2))))]
    g.rng.shuffle(parts)
    shape = list(v.shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    changes = {k: max(getattr(p, k) for p in parts) for k in ("most", "fraction", "error")}
    g.add(f"lax.concatenate([{', '.join(p.name for p in parts)}], {axis})", v, shape=tuple(shape), **changes)


def pad(g: Generator, v: Value) -> None:
    config = [g.rng.choice(((0, 0, 0), (1, 2, 0), (0, 1, 1), (-1, 0, 0), (2, -1, 0), (-1, 1, 2))) for _ in v.shape]
    shape = tuple(d + a + b + max(d - 1, 0) * i for d, (a, b, i) in zip(v.shape, config, strict=True))
    if all(d > 0 for d in shape):
        value = g.scalar(v.dtype, g.rng.choice((0, 1)))
        g.add(f"lax.pad({v.name}, {value}, {config})", v, shape=shape, most=max(v.most, 1.0))


def take_rows(g: Generator, v: Value) -> None:
    indices = [p for p in g.values if p.dtype[0] in "su" and p.size <= 40 and len(p.shape) + len(v.shape) <= 5]
    if v.shape and indices:
        p = g.rng.choice(indices)
        axis = g.rng.randrange(len(v.shape))
        # "wrap" needs the size in the type of the indices.
        mode = g.rng.choice(("clip", "wrap")) if v.shape[axis] < 128 else "clip"
        shape = (*v.shape[:axis], *p.shape, *v.shape[axis + 1 :])
        g.add(f"jnp.take({v.name}, {p.name}, axis={axis}, mode='{mode}')", v, shape=shape)


def take_along(g: Generator, v: Value) -> None:
    if not v.shape:
        return
    axis = g.rng.randrange(len(v.shape))
    indices = [
        p
        for p in g.values
        if p.dtype[0] in "su"
        and len(p.shape) == len(v.shape)
        and all(a == b for d, (a, b) in enumerate(zip(p.shape, v.shape, strict=True)) if d != axis)
    ]
    if indices:
        p = g.rng.choice(indices)
        g.add(f"jnp.take_along_axis({v.name}, {p.name}, {axis}, mode='clip')", v, shape=p.shape)


def dynamic_slice(g: Generator, v: Value) -> None:
    starts = [p for p in g.values if p.dtype in ("s32", "s64") and not p.shape]
    if v.shape and starts:
        sizes = tuple(g.rng.randrange(d) + 1 if g.rng.random() < 0.5 else d for d in v.shape)
        p = g.rng.choice(starts)
        g.add(f"lax.dynamic_slice({v.name}, ({', '.join([p.name] * len(v.shape))},), {sizes})", v, shape=sizes)
