"""Sums keep XLA's accuracy where rounding always goes the same way: one large element among many equal small ones, as
in the gradient of a loss with smoothed labels.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit

SHAPES = [((512, 4000), 1), ((4000, 512), 0), ((64, 32, 1000), 1), ((16, 65536), 1), ((512, 100), 1)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_one_large_among_equal_small(shape, axis):
    """A lane that adds its elements one after another is 10 to 1,000 times as wrong as XLA's trees."""
    x = np.full(shape, 4.88e-8, np.float32)
    at = np.random.default_rng(0).integers(0, shape[axis], [n for d, n in enumerate(shape) if d != axis])
    np.put_along_axis(x, np.expand_dims(at, axis), np.float32(-1.76e-3), axis)

    def normalised(x):
        total = jnp.sum(x * 1.5, axis, keepdims=True)
        return total, x / total

    stitched = stitch_jit(normalised)
    assert stitched.plan(x).launches == 1
    wanted = (x * np.float32(1.5)).sum(axis, keepdims=True, dtype=np.float64)

    def error(fun):
        """Root mean square, in units of half a unit in the last place."""
        relative = (np.asarray(fun(x)[0], np.float64) - wanted) / wanted
        return np.sqrt(np.mean(relative**2)) * 2**24

    assert error(stitched) <= 2 * error(jax.jit(normalised)) + 1
