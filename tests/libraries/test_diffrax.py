"""diffrax: adaptive and fixed steps, which are while loops of Equinox's own, and derivatives through them."""

from __future__ import annotations

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.libraries.compared import compared

PREY = (1.1, 0.4, 0.1, 0.4)


def lotka_volterra(t: Any, y: jax.Array, rates: Any) -> jax.Array:
    a, b, c, d = rates
    return jnp.stack([a * y[0] - b * y[0] * y[1], c * y[0] * y[1] - d * y[1]])


def solve(y: jax.Array, rates: Any = PREY, solver: Any = diffrax.Tsit5, **options: Any) -> jax.Array:
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lotka_volterra),
        solver(),
        t0=0.0,
        t1=4.0,
        dt0=0.1,
        y0=y,
        args=rates,
        saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 4.0, 9)),
        **options,
    )
    assert found.ys is not None
    return found.ys


START = np.array([10.0, 5.0], np.float32)
ADAPTIVE = {"stepsize_controller": diffrax.PIDController(rtol=1e-4, atol=1e-6)}


SOLVERS = pytest.mark.parametrize("solver", [diffrax.Heun, pytest.param(diffrax.Tsit5, marks=pytest.mark.slow)])
"""Of two stages, and of seven, whose loops are as many times as long."""


@pytest.mark.slow
@SOLVERS
def test_fixed_steps(solver: Any) -> None:
    compared(lambda jit: jit(lambda y: solve(y, solver=solver))(START))


def test_adaptive_steps() -> None:
    compared(lambda jit: jit(lambda y: solve(y, **ADAPTIVE))(START), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [diffrax.Heun, diffrax.Tsit5])
def test_many_trajectories(solver: Any) -> None:
    starts = START + np.linspace(0.0, 2.0, 16, dtype=np.float32)[:, None]
    compared(lambda jit: jit(jax.vmap(lambda y: solve(y, solver=solver, **ADAPTIVE)))(starts), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [diffrax.Heun, diffrax.Tsit5])
def test_gradient_through_a_solve(solver: Any) -> None:
    def loss(rates: Any) -> jax.Array:
        return (solve(START, rates, solver, adjoint=diffrax.RecursiveCheckpointAdjoint()) ** 2).mean()

    compared(lambda jit: jit(jax.value_and_grad(loss))(PREY), 1e-3)
