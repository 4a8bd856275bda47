"""Optimistix: least squares, roots, minima and fixed points, each a loop of unknown length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optimistix as optx
import pytest

from tests.libraries.compared import compared


def fitted(c: jax.Array) -> Any:
    def residuals(y: Any, c: Any) -> jax.Array:
        a, b = y
        return jnp.array([a - 1, 10 * (b - a**2), jnp.tanh(a * b) - c])

    start = jnp.array(0.3), jnp.array(2.0)
    return optx.least_squares(residuals, optx.LevenbergMarquardt(1e-6, 1e-6), start, c, max_steps=64, throw=False).value


def root(c: jax.Array) -> Any:
    solver = optx.Newton(1e-6, 1e-6)
    return optx.root_find(lambda y, c: jnp.cos(y) - y * c, solver, jnp.array(0.5), c, throw=False).value


def least(c: jax.Array) -> Any:
    def cost(y: jax.Array, c: jax.Array) -> jax.Array:
        return jnp.sum((y - c) ** 2 + jnp.sin(y))

    return optx.minimise(cost, optx.BFGS(1e-5, 1e-5), jnp.ones(5) * c, c, max_steps=50, throw=False).value


def fixed(c: jax.Array) -> Any:
    solver = optx.FixedPointIteration(1e-6, 1e-6)
    return optx.fixed_point(lambda y, c: jnp.cos(y * c), solver, jnp.array(0.5), c, throw=False).value


@pytest.mark.parametrize("solve", [root, fixed, *(pytest.param(f, marks=pytest.mark.slow) for f in (fitted, least))])
def test_solutions(solve: Callable[[jax.Array], Any]) -> None:
    """A loop that ends a step too early or too late, or a derivative by the implicit function theorem that is not."""

    def total(c: jax.Array) -> jax.Array:
        return jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(solve(c))]).sum()

    compared(lambda jit: jit(solve)(jnp.float32(0.7)), 2e-3)
    compared(lambda jit: jit(jax.value_and_grad(total))(jnp.float32(0.7)), 2e-3)
