"""Environments, solvers, chains and filters as users write them: one loop each, and XLA's results."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.workloads import environments
from bench.workloads import loop_programs as programs
from tests.loops.agreement import Case, assert_equals_xla, loops_of

B, T = 37, 23
RNG = np.random.default_rng(0)
KEY = jax.random.key(3)


def normal(*shape: int) -> jax.Array:
    return jax.device_put(RNG.standard_normal(shape).astype(np.float32) * 0.1)


def squared(weights: Any, x: Any, noise: Any) -> Any:
    return (programs.autoregressive(x, noise, weights) ** 2).sum()


def distance(rates: Any, y: Any) -> Any:
    return programs.fixed_step(programs.lotka_volterra_rate, y, rates).sum()


def cart_pole(name: str, steps: int = T) -> Case:
    (workload,) = (w for w in environments.WORKLOADS if w.name == name)
    return workload.make((64, steps), jnp.float32)


ANIMALS, RATES = jnp.abs(normal(B, 2)) + 1, jnp.abs(normal(B, 4)) * 0.1 + jnp.asarray([1.1, 0.4, 0.4, 0.1])
WEATHER, CLIMATE = normal(B, 3) * 10, normal(B, 3) + jnp.asarray([10.0, 28.0, 2.67])
WEIGHTS = jnp.asarray([0.9, 0.1], jnp.float32)
ages = jnp.arange(B) % 10

CASES: dict[str, Callable[[], Case]] = {
    "cart_pole": lambda: cart_pole("cart_pole"),
    "cart_pole_concatenate": lambda: cart_pole("cart_pole_concatenate"),
    "lotka_volterra": lambda: (
        functools.partial(programs.fixed_step, programs.lotka_volterra_rate),
        (ANIMALS, RATES),
    ),
    "lorenz": lambda: (functools.partial(programs.fixed_step, programs.lorenz_rate), (WEATHER, CLIMATE)),
    "lotka_volterra_adaptive": lambda: (
        functools.partial(programs.adaptive_step, programs.lotka_volterra_rate),
        (ANIMALS, RATES, jnp.float32(2)),
    ),
    "lorenz_adaptive": lambda: (
        functools.partial(programs.adaptive_step, programs.lorenz_rate),
        (WEATHER, CLIMATE, jnp.float32(0.5)),
    ),
    "logistic_map": lambda: (functools.partial(programs.logistic_map, steps=50), (jnp.float32(0.3),)),
    "autoregressive": lambda: (programs.autoregressive, (jnp.float32(0.2), normal(100_000), WEIGHTS)),
    "tracker": lambda: (programs.tracker, (normal(B, 4), jnp.tile(jnp.eye(4), (B, 1, 1)), normal(B, T, 2))),
    "kalman": lambda: (programs.kalman, (normal(B, 4), normal(B, 4, 4), normal(T, B), normal(4, 4))),
    "trajectories": lambda: (programs.trajectories, (normal(B) * 10,)),
    "discounted_rewards": lambda: (programs.discounted, (normal(T, B),)),
    "integers": lambda: (programs.integers, (jnp.arange(B, dtype=jnp.uint32),)),
}
LONG: dict[str, Callable[[], Case]] = {
    "cart_pole_rng": lambda: cart_pole("cart_pole_rng"),
    "cart_pole_unrolled": lambda: cart_pole("cart_pole_unrolled", 100),
    "pendulum": lambda: (programs.pendulum, ((normal(B), normal(B), ages), KEY)),
    "mountain_car": lambda: (programs.mountain_car, ((normal(B) - 0.5, normal(B) * 0.01, ages), KEY)),
    "metropolis": lambda: (programs.metropolis, (normal(B, 3), KEY)),
    "hamiltonian": lambda: (programs.hamiltonian, (normal(B, 3), KEY)),
    "autoregressive_gradient": lambda: (jax.grad(squared), (WEIGHTS, jnp.float32(0.2), normal(T))),
    "lotka_volterra_gradient": lambda: (jax.grad(distance), (RATES, ANIMALS)),
}
"""Of many operations, most of them JAX's random bits: XLA too takes seconds for each."""

ALL = CASES | LONG
ON_EDGE = {"trajectories"}
"""Whose path hangs on an error being below a limit: in float64, since float32's roundings are often wider than what is
between.
"""

NAMES = [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_xla(name: str, device: str) -> None:
    """Random bits of another step or row, an episode that ends a step late, a filter's gain of the step before."""
    with jax.enable_x64(name in ON_EDGE):
        function, args = ALL[name]()
        if name in ON_EDGE:
            args = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), args)
        assert_equals_xla(function, args, device)


@pytest.mark.parametrize("name", NAMES)
def test_is_a_kernel_on_the_cpu(name: str) -> None:
    """A loop that stayed with XLA would pass every comparison."""
    plan, loops = loops_of(*ALL[name]())
    assert loops == 1, str(plan)
