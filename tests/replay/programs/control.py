"""Loops and branches."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.replay.programs.registry import KEY, X, integers, normal, program


@program(normal(5, 8), normal(20, 5, 8), normal(8, 8))
def scan_gradient(h: Any, xs: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, h.sum(-1)

    return jax.value_and_grad(lambda h: lax.scan(step, h, xs)[1].sum())(h)


@program(normal(3, 4), normal(7, 3, 4), normal(8, 16))
def lstm_gradient(c: Any, xs: Any, w: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([h, x], 1) @ w, 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return jax.grad(lambda w: lax.scan(step, (c, c), xs)[1].sum())(w)


@program(normal(6), np.int32(9))
def loops(x: Any, n: Any) -> Any:
    halved = lax.while_loop(lambda v: v[0].max() > 0.1, lambda v: (v[0] / 2, v[1] + 1), (x, 0))
    counted = lax.fori_loop(0, n, lambda i, v: v.at[i % 6].add(i), x)
    return halved, counted, lax.fori_loop(0, 5, lambda i, v: v * i + jnp.sin(v), x), lax.map(jnp.exp, x)


@program(normal(6), np.int32(1), exact=True)
def branches(x: Any, i: Any) -> Any:
    functions = [lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y]
    chosen = [lax.switch(k, functions, x, x * 2) for k in (i, i + 7, i - 9)]
    return chosen, lax.cond(i > 0, lambda x: (x, x[0]), lambda x: (-x, x[1]), x)


@program(normal(4, 6))
def nested_control(x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        grown = lax.while_loop(lambda v: jnp.abs(v).sum() < 20, lambda v: v * 1.5 + 0.1, row)
        carry = lax.cond(
            row[0] > 0, lambda c: c + grown, lambda c: lax.fori_loop(0, 3, lambda i, c: c - grown * i, c), carry
        )
        return carry, grown

    return lax.scan(body, x[0], x)


@program(normal(5, 6), integers(5, high=3))
def batched_control(x: Any, i: Any) -> Any:
    def f(row: Any, k: Any) -> Any:
        y = lax.switch(k, [jnp.sin, jnp.cos, jnp.exp], row)
        return lax.while_loop(lambda v: v.sum() < 30, lambda v: v + 1.25, y)

    return jax.vmap(f)(x, i)


@program(normal(4, 16), KEY)
def simulation(state: Any, key: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        s, key = carry
        key, sub = jax.random.split(key)
        force = jax.random.bernoulli(sub, 0.5, s.shape[1:]) * 2.0 - 1
        s = jnp.stack([s[0] + 0.02 * s[1], s[1] + 0.02 * force, s[2] + 0.02 * s[3], s[3] + 0.02 * jnp.sin(s[2])])
        s = jnp.where(jnp.abs(s[2]) > 0.5, 0.0, s)
        return (s, key), s[0]

    (s, _), xs = lax.scan(step, (state, jax.random.wrap_key_data(key)), None, 20)
    return s, xs


@program(X, partial(jnp.float32)(2.5))
def many_constants(x: Any, s: Any) -> Any:
    table = jnp.asarray(np.linspace(0, 1, 53 * 3).astype(np.float32).reshape(3, 53))
    return x * table[1] + s, jnp.dot(x, table.T), table.astype(jnp.bfloat16)
