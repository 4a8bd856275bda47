"""``argmax`` and ``argmin`` in kernels: the first of equal values and of several NaNs, however lanes share a row."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fusion import forced


def values(dtype) -> jax.Array:
    """Rows full of ties; with NaNs whose places lanes reach in another order, infinities and both zeros."""
    x = np.random.default_rng(0).integers(-3, 4, (9, 70)).astype(np.float32)
    if jnp.issubdtype(dtype, jnp.floating):
        x[0, [5, 40]] = x[3] = x[7, [69, 33, 64]] = np.nan
        x[1, 3], x[2], x[5] = np.inf, -np.inf, 0.0
        x[5, 3] = -0.0
    return jnp.asarray(x, dtype)


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.int8], ids=lambda d: d.__name__)
def test_the_first_is_found(dtype, target: str) -> None:
    x = values(dtype)

    def function(x):
        return [f(x, axis) for f in (jnp.argmax, jnp.argmin) for axis in (0, 1, None)]

    made = forced.stitched(forced.hlo_of(function, x), forced.device(target))
    reduces = [i for k in made.kernels for p in k.scheduled.parts for i in p.pattern.nodes]
    assert sum(made.plan.graph[i].op == "reduce" for i in reduces) >= 6
    for got, want in zip(forced.run(made, [x]), function(np.asarray(x, np.float32)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("length", [127, 128, 129, 300])
def test_the_first_nan_is_found_where_its_index_does_not_fit_its_type(length: int) -> None:
    """Indices of 8 bits from 128 on wrap around, and the smaller one is no longer the first."""
    x = np.random.default_rng(1).standard_normal((9, length)).astype(np.float32)
    x[np.random.default_rng(2).random(x.shape) < 0.2] = np.nan

    def function(x):
        return [f(x * 2, 1, jnp.int8) for f in (jax.lax.argmax, jax.lax.argmin)]

    made = forced.stitched(forced.hlo_of(function, x), forced.device("cpu"))
    stitched = any(
        made.plan.graph[i].op == "reduce" for k in made.kernels for p in k.scheduled.parts for i in p.pattern.nodes
    )
    assert stitched == (length <= 128)
    for got, want in zip(forced.run(made, [x]), jax.jit(function)(x), strict=True):
        np.testing.assert_array_equal(got, want)
