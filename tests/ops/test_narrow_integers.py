"""Integers narrower than 32 bits wrap around, which index expressions do not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import stitch_jit

DTYPES = ("int8", "uint8", "int16", "uint16")
TABLE = jnp.asarray(np.random.default_rng(0).standard_normal(70_000), jnp.float32)
ROWS = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)


def number(value: int, dtype: str) -> np.ndarray:
    """``value`` modulo the range of the type."""
    return np.asarray(value).astype(dtype)


def assert_same(fun: Any, *args: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, stitch_jit(fun, mode="now")(*args), jax.jit(fun)(*args))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("start", "by"), [(0, 1), (3, 1), (0, 2), (-1, -1), (120, 1), (-100, 77)])
def test_counters_that_wrap(dtype: str, start: int, by: int) -> None:
    """A counter in closed form read rows 128, 129, ... where int8 counts on from -128; uint8 from 0."""

    def run(table: jax.Array) -> Any:
        def step(c: jax.Array, _: None) -> Any:
            return c + number(by, dtype), (table[c], c)

        return lax.scan(step, number(start, dtype), length=300)

    assert_same(run, TABLE)


@pytest.mark.parametrize("dtype", DTYPES)
def test_counters_that_are_compared(dtype: str) -> None:
    """What a counter is compared with, and added to, is of its type too."""

    def run(x: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            c, x = carry
            x = jnp.where(c + number(100, dtype) < number(50, dtype), x * 0.5, x + 1)
            return (c + number(1, dtype), x), x[0]

        return lax.scan(step, (number(0, dtype), x), length=300)

    assert_same(run, TABLE[:37])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("count", [100, 300])
def test_scatters_at_counts_that_wrap(dtype: str, converted: bool, count: int) -> None:
    """Rows 256 to 299 of uint8 counts are rows 0 to 43 again; those from 128 of int8 are negative, so dropped."""

    def run(updates: jax.Array) -> jax.Array:
        places = lax.iota(jnp.int32, count).astype(dtype) if converted else lax.iota(dtype, count)
        return lax.scatter_add(jnp.ones((count, 5)), places[:, None], updates, ROWS) * 2

    assert_same(run, TABLE[: count * 5].reshape(count, 5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_of_counts_that_wrap(dtype: str) -> None:
    """A comparison whose outcome an unbounded count would tell."""

    def run(x: jax.Array) -> jax.Array:
        rows = lax.iota(dtype, 300)[:, None]
        return jnp.where((rows + number(100, dtype) < number(50, dtype)) | (rows < number(44, dtype)), x, -x).max(1)

    assert_same(run, TABLE[:1500].reshape(300, 5))
