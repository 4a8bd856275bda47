"""Whole loops as one kernel: equal to XLA's, on the CPU's schedule and the H200's, and one launch where they are local."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from jax_stitch.capture import cuda_plugin_installed

B, T = 37, 23
RNG = np.random.default_rng(0)


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.standard_normal(shape).astype(np.float32) * 0.1)


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


def environment_with_rng(state: Any, key: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        inner, k = carry
        k, use = jax.random.split(k)
        action = jax.random.bernoulli(use, 0.5, (B,))
        after, (x, done) = cart_pole(inner, jnp.where(action, 1.0, -1.0))
        return (after, k), (done, action)

    return jax.lax.scan(step, (state, key), None, length=T)


def lorenz(y: Any) -> Any:
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

    return jax.lax.scan(step, y, None, length=T)[0]


def logistic_map(x: Any) -> Any:
    return jax.lax.scan(lambda x, _: (3.7 * x * (1 - x), x), x, None, length=T)


def filtered(x: Any) -> Any:
    return jax.lax.scan(lambda y, x: ((y * 0.9 + x), y), jnp.float32(0), x)


def discounted(rewards: Any) -> Any:
    return jax.lax.scan(lambda g, r: (r + 0.99 * g, r + 0.99 * g), jnp.zeros(B), rewards, reverse=True)[1]


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


def integers(x: Any) -> Any:
    def step(x: Any, i: Any) -> Any:
        x = (x ^ (x << 13)) + i
        return x, x & 255

    return jax.lax.scan(step, x, jnp.arange(T, dtype=jnp.uint32))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cart_pole": (environment, (tuple(normal(4, B)), normal(T, B))),
    "cart_pole_concatenate": (environment_with_concatenate, (normal(B, 4), normal(T, B))),
    "cart_pole_rng": (environment_with_rng, (tuple(normal(4, B)), jnp.asarray([1, 2], jnp.uint32))),
    "lorenz": (lorenz, (normal(B, 3),)),
    "logistic_map": (logistic_map, (jnp.float32(0.3),)),
    "filter": (filtered, (normal(T),)),
    "discounted_rewards": (discounted, (normal(T, B),)),
    "kalman": (kalman, (normal(B, 4), normal(B, 4, 4), normal(T, B), normal(4, 4))),
    "fori": (powers, (normal(B),)),
    "integers": (integers, (jnp.arange(B, dtype=jnp.uint32),)),
}


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", CASES)
def test_equals_xla(name: str, device: str) -> None:
    """A wrong step order, a stale carry, a slice read or written at another step's place."""
    function, args = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = jax.jit(stitch(function, schedule_device=device))(*args)
    wanted = jax.jit(function)(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        if jnp.issubdtype(a.dtype, jnp.floating):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_is_one_kernel_on_the_cpu(name: str) -> None:
    """A loop that fell back to XLA would pass every comparison."""
    function, args = CASES[name]
    plan = stitch_jit(function).plan(*args)
    assert any("a loop of" in k.source for k in plan.kernels), str(plan)


@pytest.mark.skipif(not cuda_plugin_installed(), reason="needs the CUDA plugin, to compile for a described GPU")
@pytest.mark.parametrize("name", CASES)
def test_launches_on_the_h200(name: str) -> None:
    """A kernel per step; or kernels around the loop that belong into it."""
    function, args = CASES[name]
    plan = stitch_jit(function).plan(*args, device="h200")
    assert plan.launches <= min(3, plan.xla_launches), str(plan)


def test_loop_with_a_sum_over_the_batch_stays_with_xla() -> None:
    """Rows that need each other must not run apart."""

    def coupled(x: Any) -> Any:
        return jax.lax.scan(lambda x, _: (x * 0.9 + x.mean() * 0.1, None), x, None, length=T)[0]

    x = jnp.asarray(RNG.standard_normal(1000).astype(np.float32))
    plan = stitch_jit(coupled).plan(x)
    assert not any("a loop of" in k.source for k in plan.kernels)
    np.testing.assert_allclose(stitch_jit(coupled)(x), jax.jit(coupled)(x), rtol=1e-5, atol=1e-6)
