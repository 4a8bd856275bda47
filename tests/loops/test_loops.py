"""Whole loops as one kernel: equal to XLA's with the CPU's schedule and the H200's, and one launch where local."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.workloads.loop_programs import (
    discounted,
    environment,
    environment_with_concatenate,
    environment_with_rng,
    filtered,
    integers,
    kalman,
    logistic_map,
    lorenz,
    powers,
    trajectories,
    until,
)
from jax_stitch import stitch, stitch_jit
from jax_stitch.capture import cuda_plugin_installed

B, T = 37, 23
RNG = np.random.default_rng(0)


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.standard_normal(shape).astype(np.float32) * 0.1)


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
    "adaptive": (trajectories, (normal(B) * 10,)),
    "until": (until, (normal(B), jnp.int32(17))),
    "no_trip": (until, (normal(B), jnp.int32(0))),
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


def test_loop_with_a_sum_over_the_batch_is_not_split() -> None:
    """Rows that need each other must not run apart."""

    def coupled(x: Any) -> Any:
        return jax.lax.scan(lambda x, _: (x * 0.9 + x.mean() * 0.1, None), x, None, length=T)[0]

    x = jnp.asarray(RNG.standard_normal(1000).astype(np.float32))
    plan = stitch_jit(coupled).plan(x)
    assert not any("rows, one thread each" in k.source for k in plan.kernels)
    np.testing.assert_allclose(stitch_jit(coupled)(x), jax.jit(coupled)(x), rtol=1e-5, atol=1e-6)
