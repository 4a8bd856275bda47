"""Loops that stitching turns into one kernel: environments, solvers, chains, filters. ``steps`` is their length."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def cart_pole(state: Any, action: Any) -> Any:
    x, v, angle, w = state
    force = jnp.where(action > 0, 10.0, -10.0)
    c, s = jnp.cos(angle), jnp.sin(angle)
    t = (force + 0.05 * w * w * s) / 1.1
    turn = (9.8 * s - c * t) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
    push = t - 0.05 * turn * c / 1.1
    after = (x + 0.02 * v, v + 0.02 * push, angle + 0.02 * w, w + 0.02 * turn)
    return after, (after[0], jnp.abs(after[0]) > 2.4)


def environment(state: Any, actions: Any) -> Any:
    return jax.lax.scan(cart_pole, state, actions)


def environment_with_concatenate(state: Any, actions: Any) -> Any:
    def step(carry: Any, action: Any) -> Any:
        after, (_, done) = cart_pole(tuple(carry.T), action)
        return jnp.stack(after, -1), done

    return jax.lax.scan(step, state, actions)


def environment_with_rng(state: Any, key: Any, steps: int = 23) -> Any:
    def step(carry: Any, _: Any) -> Any:
        inner, k = carry
        k, use = jax.random.split(k)
        action = jax.random.bernoulli(use, 0.5, state[0].shape)
        after, (_, done) = cart_pole(inner, jnp.where(action, 1.0, -1.0))
        return (after, k), (done, action)

    return jax.lax.scan(step, (state, key), None, length=steps)


def lorenz(y: Any, steps: int = 23) -> Any:
    def f(y: Any) -> Any:
        a, b, c = y[:, 0], y[:, 1], y[:, 2]
        return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8 / 3 * c], -1)

    def step(y: Any, _: Any) -> Any:
        h = 0.01
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(step, y, None, length=steps)[0]


def logistic_map(x: Any, steps: int = 23) -> Any:
    return jax.lax.scan(lambda x, _: (3.7 * x * (1 - x), x), x, None, length=steps)


def filtered(x: Any) -> Any:
    return jax.lax.scan(lambda y, x: ((y * 0.9 + x), y), jnp.float32(0), x)


def discounted(rewards: Any) -> Any:
    return jax.lax.scan(lambda g, r: (r + 0.99 * g, r + 0.99 * g), jnp.zeros(rewards.shape[1]), rewards, reverse=True)[
        1
    ]


def kalman(x: Any, p: Any, z: Any, a: Any) -> Any:
    def step(carry: Any, z: Any) -> Any:
        x, p = carry
        x = jnp.einsum("ij,bj->bi", a, x)
        p = jnp.einsum("ij,bjk,lk->bil", a, p, a) + 0.01 * jnp.eye(4)
        k = p[:, :, 0] / (p[:, 0, 0] + 0.1)[:, None]
        x = x + k * (z - x[:, 0])[:, None]
        p = p - k[:, :, None] * p[:, None, 0, :]
        return (x, p), x[:, 0]

    return jax.lax.scan(step, (x, p), z)


def powers(x: Any) -> Any:
    return jax.lax.fori_loop(0, 50, lambda i, x: x * 0.99 + i.astype(jnp.float32) * 0.001, x)


def integers(x: Any, steps: int = 23) -> Any:
    def step(x: Any, i: Any) -> Any:
        x = (x ^ (x << 13)) + i
        return x, x & 255

    return jax.lax.scan(step, x, jnp.arange(steps, dtype=jnp.uint32))


def adaptive(y: Any, end: Any) -> Any:
    """An adaptive step in a while_loop, to be mapped: every trajectory takes its own number of steps."""

    def go_on(c: Any) -> Any:
        return c[0] < end

    def step(c: Any) -> Any:
        t, y, h, n = c

        def f(y: Any) -> Any:
            return -2.0 * y + jnp.sin(y)

        coarse = y + h * f(y)
        half = y + h / 2 * f(y)
        fine = half + h / 2 * f(half)
        error = jnp.abs(fine - coarse)
        ok = error < 1e-4
        wanted = jnp.where(error < 2e-5, 2 * h, jnp.where(ok, h, h / 2))  # powers of two: no rounding decides the path
        return jnp.where(ok, t + h, t), jnp.where(ok, fine, y), wanted, n + 1

    return jax.lax.while_loop(go_on, step, (0.0, y, 0.01, 0))


def trajectories(y: Any) -> Any:
    return jax.vmap(adaptive, (0, None))(y, 0.5)


def until(x: Any, n: Any) -> Any:
    """A number of trips that is data, the same for all rows."""
    return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.9 + 0.1), (0, x))[1]
