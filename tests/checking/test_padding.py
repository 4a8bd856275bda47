"""Structs of values of different sizes in shared memory: no byte of them is read that nobody wrote."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jax_stitch.checking import check_function
from tests.fusion import forced
from tests.fuzz.ways import device_of


@pytest.mark.parametrize("dtype", ["bool", "int16", "bfloat16"])
def test_a_value_and_its_place(dtype: str) -> None:
    def f(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        best = jnp.argmax(x, 0)
        return best - best.max(), x[0] + best.sum().astype(x.dtype)

    x = (jnp.arange(60).reshape(20, 3) * 7 % 5).astype(dtype)
    kernels = forced.stitched(forced.hlo_of(f, x), device_of("middle"), 1)
    assert any("ST_SHARED(Combine" in k.source.text for k in kernels.kernels)
    assert not check_function(kernels, (x,)).errors
