"""Accesses of 16 bytes: in what NVRTC makes of the kernels, and right by CUDA's rules where rows are not multiples."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.backend.compile import compile_ptx
from jax_stitch.checking import check_function
from tests.fusion import forced

H200 = forced.device("h200")


def normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale).astype(x.dtype)


def gradient(x: jax.Array, scale: jax.Array) -> tuple[jax.Array, ...]:
    return jax.vjp(normalised, x, scale)[1](x)


@pytest.mark.parametrize(
    ("dtype", "columns", "access"),
    [("float32", 1024, "v4.f32"), ("bfloat16", 2048, r"v4\.[fbu]32"), ("float32", 1023, None)],
)
def test_accesses_in_ptx(dtype: str, columns: int, access: str | None) -> None:
    shapes = jax.ShapeDtypeStruct((4096, columns), dtype), jax.ShapeDtypeStruct((columns,), dtype)
    (kernel,) = forced.stitched(forced.hlo_of(normalised, *shapes), H200).kernels
    ptx = compile_ptx(kernel.source, "sm_90").ptx
    loads, stores = (re.findall(rf"{op}\.global\S*", ptx) for op in ("ld", "st"))
    for found in (loads, stores):
        if access is None:
            assert not any(".v" in f for f in found)
        else:
            assert all(re.search(access, f) for f in found), found


@pytest.mark.parametrize("function", [normalised, gradient], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("columns", [1024, 96, 130])
def test_vectors_keep_to_CUDAs_rules(function, dtype: str, columns: int) -> None:
    """Misaligned accesses, places that no lane has, or values kept for other places than they are read at."""
    generator = np.random.default_rng(0)
    x = jnp.asarray(generator.standard_normal((40, columns)), dtype)
    scale = jnp.asarray(generator.standard_normal(columns), dtype)
    stitched = forced.stitched(forced.hlo_of(function, x, scale), H200)
    checked = check_function(stitched, [x, scale])
    assert not checked.errors, str(checked)
    tolerance = 1e-4 if dtype == "float32" else 0.05
    for g, w in zip(checked.results, jax.tree.leaves(jax.jit(function)(x, scale)), strict=True):
        w = np.asarray(w, np.float64)
        np.testing.assert_allclose(np.asarray(g, np.float64), w, rtol=tolerance, atol=tolerance * np.abs(w).max())
