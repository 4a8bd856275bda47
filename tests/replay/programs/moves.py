"""Shapes, gathers and scatters, reductions, windows and sorts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.replay.programs.registry import X, integers, normal, program


@program(X, np.float32(2), exact=True)
def movement(x: Any, v: Any) -> Any:
    return (
        lax.pad(x, v, ((1, 2, 0), (-3, 4, 2))),
        x[::-1, 3:20:3],
        jnp.roll(x, 5, 1),
        jnp.concatenate([x, x[:4] * 2]),
        x.T.reshape(53 * 37)[3:],
        jnp.tile(x, (2, 1)),
        jnp.repeat(x, 3, 1),
        jnp.broadcast_to(x[0][:, None, None], (53, 2, 3)),
        x.reshape(37, 53, 1).transpose(2, 1, 0),
        jnp.triu(x),
        jnp.diag(x[0]),
        jnp.eye(5)[:, ::2],
    )


@program(normal(4, 6, 10), exact=True)
def reshapes_of_transposes(x: Any) -> Any:
    y = x.transpose(2, 0, 1)
    return y.reshape(8, 5, 6), y.reshape(240), y.reshape(20, 12).T, x.reshape(24, 10).T.reshape(5, 2, 24) + 1


@program(X, integers(2), exact=True)
def dynamic_slices(x: Any, i: Any) -> Any:
    y = lax.dynamic_slice(x, (i[0] - 20, i[1] + 49), (5, 7))
    return y, lax.dynamic_update_slice(x, y, (i[1], -i[0])), x[i[0]], x.at[i[1]].set(3.0)


@program(exact=True)
def made_of_nothing() -> Any:
    return jnp.arange(7), jnp.zeros((3, 0)), jnp.full((2, 2), 3.5), np.arange(100.0, dtype=np.float32).reshape(5, 20)


@program(X, np.float32(3), exact=True)
def passed_through(x: Any, s: Any) -> Any:
    return s, x, x, (), {"a": x[:0]}


@program(X, integers(11, low=-70, high=70), exact=True)
def gathers(x: Any, i: Any) -> Any:
    return (
        x[i],
        x.at[:, i].get(mode="fill", fill_value=7),
        x.at[i].get(mode="clip"),
        jnp.take(x, i, 1, mode="wrap"),
        x[i, i[::-1]],
    )


@program(X, integers(37, 4, low=-60, high=60), normal(37, 4))
def take_along_axis_gradient(x: Any, i: Any, dy: Any) -> Any:
    return jax.vjp(lambda x: jnp.take_along_axis(x, i, 1), x)[1](dy)


@program(X, integers(11, low=-45, high=45), normal(11, 53, seed=7))
def scatters(x: Any, i: Any, u: Any) -> Any:
    at = x.at[i]
    return (
        at.add(u),
        at.multiply(u),
        at.min(u),
        at.max(u),
        x.at[0, i].add(u[:, 0]),
        x.at[i, :3].add(u[:, 2:5]),
        at.apply(jnp.sin),
    )


@program(X, integers(11, high=37), exact=True)
def scatter_set(x: Any, i: Any) -> Any:
    return x.at[jnp.unique(i, size=11, fill_value=99)].set(1.5, unique_indices=True), x.at[jnp.arange(37), 3].set(2.0)


@program(normal(40), integers(40, high=6))
def segments(x: Any, i: Any) -> Any:
    return jax.ops.segment_sum(x, i, 6), jax.ops.segment_max(x, i, 6), jnp.bincount(i, length=6), jnp.histogram(x, 5)[0]


@program(X, integers(12, high=37), normal(12, 53))
def embedding_gradient(w: Any, i: Any, dy: Any) -> Any:
    return jax.vjp(lambda w: w[i], w)[1](dy)


@program(X)
def reductions(x: Any) -> Any:
    return (
        x.sum(),
        x.sum(0),
        x.prod(1),
        x.max(1),
        x.min(),
        jnp.argmax(x, 1),
        jnp.argmin(x),
        x.std(0),
        jnp.nanmean(x),
        x.var(),
    )


@program(X, integers(37, 53))
def reductions_of_several(x: Any, i: Any) -> Any:
    def combine(a: Any, b: Any) -> Any:
        return lax.max(a[0], b[0]), lax.max(a[1], b[1]), a[2] | b[2]

    start = np.float32(1), np.int32(0), np.bool_(False)
    return lax.reduce((lax.abs(x), i, x > 2), start, combine, (1,))


@program(X)
def cumulative(x: Any) -> Any:
    found = jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x), lax.cummin(x, 1, reverse=True), lax.cumlogsumexp(x, 1)
    return *found, lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x))


@program(normal(2, 12, 13, 3))
def pooling(x: Any) -> Any:
    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    y, vjp = jax.vjp(pool, x)
    average = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    dilated = lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 1, 2, 1), "VALID", (1, 2, 1, 1), (1, 1, 2, 1))
    return y, vjp(y), average, dilated


@program(normal(2, 12, 12, 3))
def windows_that_tile(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 4, 1), (1, 3, 4, 1), ((0, 0), (2, 1), (0, 0), (0, 0)))


@program(X, integers(37, 53, high=5), exact=True)
def sorts(x: Any, i: Any) -> Any:
    nans = jnp.where(x > 1.5, jnp.nan, x)
    return (
        jnp.sort(nans),
        jnp.argsort(i, axis=0),
        jnp.sort(x, descending=True),
        lax.sort((i, x), num_keys=2),
        jnp.lexsort((x[0], i[0])),
    )


@program(X, exact=True)
def top_k(x: Any) -> Any:
    return (
        lax.top_k(x, 5),
        jnp.median(x, 0),
        jnp.percentile(x, 30),
        jnp.searchsorted(x[0].sort(), x[1]),
        jnp.unique(x[0], size=60),
    )
