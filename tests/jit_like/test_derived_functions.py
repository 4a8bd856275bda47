"""What JAX makes of a stitched function has the methods of its own type, and not those of the function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.jit.tiers.stitched_function import ModeName


@pytest.mark.parametrize("mode", ["auto", "async", "now", "off"])
@pytest.mark.parametrize("static", [False, True])
def test_lowered_derivatives_are_derivatives(mode: ModeName, static: bool) -> None:
    """``jax.value_and_grad`` copies a function's attributes: its ``lower`` lowered the function alone."""

    def power(x: jax.Array, n: int = 3) -> jax.Array:
        return (x**n).sum()

    options: dict[str, Any] = {"static_argnames": "n"} if static else {}
    stitched = stitch_jit(power, mode=mode, **options)
    x = jnp.arange(6.0)
    value, gradient = jax.jit(jax.value_and_grad(stitched)).lower(x).compile()(x)
    np.testing.assert_allclose(value, (x**3).sum(), rtol=1e-6)
    np.testing.assert_allclose(gradient, 3 * x**2, rtol=1e-6)
    assert jax.jit(jax.vmap(stitched)).eval_shape(jnp.ones((4, 6))).shape == (4,)
    assert stitched.lower(x).compile()(x).shape == stitched.eval_shape(x).shape == ()
    assert "stitched" in str(stitched.trace(x).jaxpr) or mode == "off"
