"""Loops that take less time than a call of a kernel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.loops.agreement import assert_equals_xla, loops_of


def decay(steps: int) -> Any:
    return lambda x, noise: lax.scan(lambda c, v: (c * 0.9 + v, c), x, noise[:steps])


def arguments(rows: int, steps: int) -> tuple[jax.Array, jax.Array]:
    return jnp.linspace(0.1, 1.0, rows), jnp.linspace(-1.0, 1.0, rows * steps).reshape(steps, rows)


@pytest.mark.parametrize(("rows", "steps", "loops"), [(1, 10, 0), (1, 1000, 1), (256, 10, 1)])
def test_a_few_steps_of_a_number_stay_with_xla(rows: int, steps: int, loops: int) -> None:
    """A call that costs more than the loop; or loops that are worth a kernel left to XLA too."""
    args = arguments(rows, steps)
    plan, found = loops_of(decay(steps), args)
    assert found == loops
    assert loops or any("so short" in b.reason for b in plan.boundaries if b.op == "while")
    assert_equals_xla(decay(steps), args, "cpu")


def test_on_a_gpu_each_step_of_xla_is_a_launch() -> None:
    assert_equals_xla(decay(10), arguments(1, 10), "h200")


def test_a_short_loop_beside_a_long_one_joins_it() -> None:
    """Two calls in place of one."""

    def run(x: Any, noise: Any) -> Any:
        x, few = decay(10)(x, noise)
        return lax.fori_loop(0, 1000, lambda i, c: jnp.sin(c) + 0.1, x), few

    plan, found = loops_of(run, arguments(1, 10))
    assert found and not any("so short" in b.reason for b in plan.boundaries)


def test_long_loops_inside_short_ones() -> None:
    """A loop judged by what it carries alone."""

    def run(x: Any) -> Any:
        inner = lambda c: lax.fori_loop(0, 10_000, lambda i, c: jnp.sin(c) + 0.1, c)  # noqa: E731
        return lax.fori_loop(0, 3, lambda i, c: inner(c) * 0.5, x)

    _, found = loops_of(run, (jnp.ones(1),))
    assert found == 1
