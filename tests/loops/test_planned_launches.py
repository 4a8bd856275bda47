"""The programs that loops in one kernel are for: how many launches an H200 needs at full size, and results as XLA's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.workloads import ALL, environments
from bench.workloads import loop_programs as programs
from jax_stitch import stitch_jit
from jax_stitch.frontend.capture import cuda_plugin_installed
from tests.loops import block_programs as blocks
from tests.loops.agreement import Case, assert_equals_xla

RNG = np.random.default_rng(0)
KEY = jax.random.key(3)
WEIGHTS = jnp.asarray([0.9, 0.1], jnp.float32)


def normal(*shape: int, scale: float = 0.1) -> jax.Array:
    return jax.device_put(RNG.standard_normal(shape).astype(np.float32) * scale)


def positive(*shape: int) -> jax.Array:
    return jnp.abs(normal(*shape, scale=1.0))


def cart_pole(name: str) -> Callable[[int, int], Case]:
    (workload,) = (w for w in environments.WORKLOADS if w.name == name)
    return lambda batch, steps: workload.make((batch, steps), jnp.float32)


def pendulum(batch: int, steps: int) -> Case:
    state = normal(batch), normal(batch), jnp.arange(batch) % 10
    return functools.partial(programs.pendulum, steps=steps), (state, KEY)


def mountain_car(batch: int, steps: int) -> Case:
    state = normal(batch) - 0.5, normal(batch) * 0.01, jnp.arange(batch) % 10
    return functools.partial(programs.mountain_car, steps=steps), (state, KEY)


def animals(batch: int) -> tuple[jax.Array, jax.Array]:
    return positive(batch, 2) + 1, positive(batch, 4) * 0.01 + jnp.asarray([1.1, 0.4, 0.4, 0.1])


def weather(batch: int) -> tuple[jax.Array, jax.Array]:
    return normal(batch, 3) * 10, normal(batch, 3) + jnp.asarray([10.0, 28.0, 2.67])


def lotka_volterra(batch: int, steps: int) -> Case:
    return functools.partial(programs.fixed_step, programs.lotka_volterra_rate, steps=steps), animals(batch)


def lorenz(batch: int, steps: int) -> Case:
    return functools.partial(programs.fixed_step, programs.lorenz_rate, steps=steps), weather(batch)


def adaptive_animals(batch: int) -> Case:
    solve = functools.partial(programs.adaptive_step, programs.lotka_volterra_rate)
    return solve, (*animals(batch), jnp.float32(2))


def adaptive_weather(batch: int) -> Case:
    return functools.partial(programs.adaptive_step, programs.lorenz_rate), (*weather(batch), jnp.float32(0.5))


def metropolis(chains: int, steps: int) -> Case:
    return functools.partial(programs.metropolis, steps=steps), (normal(chains, 3), KEY)


def hamiltonian(chains: int, steps: int) -> Case:
    return functools.partial(programs.hamiltonian, steps=steps), (normal(chains, 3), KEY)


def logistic_map(steps: int) -> Case:
    return functools.partial(programs.logistic_map, steps=steps), (jnp.float32(0.3),)


def autoregressive(steps: int) -> Case:
    return programs.autoregressive, (jnp.float32(0.2), normal(steps), WEIGHTS)


def kalman(batch: int, steps: int) -> Case:
    return programs.tracker, (normal(batch, 4), jnp.tile(jnp.eye(4), (batch, 1, 1)), normal(batch, steps, 2))


def made(function: Callable[..., Any], arguments: Callable[..., tuple[Any, ...]]) -> Callable[..., Case]:
    """A program of ``block_programs``, by the sizes of its arguments."""
    return lambda *sizes: (function, arguments(*sizes))


def viterbi(steps: int, batch: int, states: int) -> Case:
    seen = normal(steps, batch, states, scale=1.0)
    return blocks.viterbi, (normal(states), normal(states, states, scale=1.0), seen)


PROMISED: dict[str, tuple[int, Callable[..., Case], tuple[int, ...], tuple[int, ...]]] = {
    "cart_pole": (1, cart_pole("cart_pole"), (2048, 1000), (64, 23)),
    "cart_pole_concatenate": (1, cart_pole("cart_pole_concatenate"), (2048, 1000), (64, 23)),
    "cart_pole_rng": (1, cart_pole("cart_pole_rng"), (2048, 1000), (64, 23)),
    "cart_pole_unrolled": (1, cart_pole("cart_pole_unrolled"), (2048, 1000), (64, 100)),
    "pendulum": (1, pendulum, (2048, 1000), (37, 23)),
    "mountain_car": (1, mountain_car, (2048, 1000), (37, 23)),
    "lotka_volterra": (1, lotka_volterra, (2048, 1000), (37, 23)),
    "lorenz": (1, lorenz, (2048, 1000), (37, 23)),
    "lotka_volterra_adaptive": (1, adaptive_animals, (2048,), (37,)),
    "lorenz_adaptive": (1, adaptive_weather, (2048,), (37,)),
    "metropolis": (2, metropolis, (2048, 1000), (200, 100)),
    "hamiltonian": (2, hamiltonian, (2048, 1000), (37, 23)),
    "logistic_map": (1, logistic_map, (100_000,), (50,)),
    "autoregressive": (1, autoregressive, (100_000,), (1000,)),
    "kalman": (1, kalman, (2048, 1000), (37, 70)),
    "lstm": (2, made(blocks.lstm, blocks.lstm_arguments), (32, 128, 64), (6, 20, 7)),
    "lstm_of_512": (1, made(blocks.lstm, blocks.lstm_arguments), (32, 512, 64), (3, 36, 5)),
    "gru": (2, made(blocks.gru, blocks.gru_arguments), (32, 128, 64), (4, 20, 9)),
    "bidirectional": (2, made(blocks.bidirectional, blocks.bidirectional_arguments), (32, 128, 64), (6, 18, 9)),
    "lstm_gradient": (4, made(blocks.lstm_gradient, blocks.lstm_arguments), (32, 128, 64), (6, 20, 7)),
    "gru_gradient": (4, made(blocks.gru_gradient, blocks.gru_arguments), (32, 128, 64), (4, 20, 9)),
    "bidirectional_gradient": (
        4,
        made(blocks.bidirectional_gradient, blocks.bidirectional_arguments),
        (32, 128, 64),
        (6, 18, 9),
    ),
    "logistic_regression": (
        2,
        made(blocks.logistic_regression, blocks.logistic_regression_arguments),
        (500, 64, 32),
        (20, 70, 33),
    ),
    "word2vec": (2, made(blocks.word2vec, blocks.word2vec_arguments), (500, 64, 1000, 64, 5), (9, 7, 12, 33, 3)),
    "perceptron": (2, made(blocks.perceptron, blocks.perceptron_arguments), (500, 32, 32, 64, 10), (20, 8, 18, 33, 5)),
    "sinkhorn": (2, lambda n: (blocks.sinkhorn, (positive(n, n),)), (256,), (70,)),
    "sinkhorn_in_logarithms": (2, lambda n: (blocks.sinkhorn_in_logarithms, (positive(n, n),)), (256,), (70,)),
    "power_iteration": (2, lambda n: (blocks.power_iteration, (normal(n, n), normal(n))), (256,), (70,)),
    "viterbi": (2, viterbi, (64, 32, 64), (12, 4, 70)),
    "ctc": (2, made(blocks.ctc, blocks.ctc_arguments), (64, 32, 64, 16), (12, 4, 9, 35)),
}
"""For each program the most launches, what makes it, and its sizes: for the H200, and to run here."""

QUICK = ("cart_pole", "lotka_volterra_adaptive", "kalman", "lstm_gradient", "sinkhorn", "ctc")
"""Which of them are planned and run every time."""


@pytest.mark.skipif(not cuda_plugin_installed(), reason="needs the CUDA plugin, to compile for a described GPU")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROMISED]
)
def test_launches_and_results(name: str) -> None:
    """A kernel per step, kernels around the loop that belong into its launch, or a result that is not XLA's."""
    most, make, full, reduced = PROMISED[name]
    function, args = make(*full)
    plan = stitch_jit(function).plan(*args, device="h200")
    assert plan.launches <= most, str(plan)
    assert_equals_xla(*make(*reduced), "h200")


@pytest.mark.skipif(not cuda_plugin_installed(), reason="needs the CUDA plugin, to compile for a described GPU")
def test_a_transpose_before_a_loop_shares_its_launch() -> None:
    """XLA of jax 0.12 gives a loop inputs in any layout. A kernel reads rows: a launch of its own turned them."""
    function, args = ALL["dialogue_generation"].abstract((8, 32, 32, 128, 128, 1000), jnp.dtype(jnp.float32))
    plan = stitch_jit(function).plan(*args, device="h200")
    assert plan.launches == 1, str(plan)
