"""A training or inference loop under ``jax.jit`` and under ``stitch_jit``."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import stitch_jit
from tests.side_by_side import fallbacks

Jit = Callable[..., Any]
"""``jax.jit`` or ``stitch_jit``."""


def compared(run: Callable[[Jit], Any], precision: float = 1e-4) -> Any:
    """What ``run(jit)`` returns must agree under both jits, without a warning; returns the stitched one's.

    Numbers may differ by rounding, relative to the largest of their array, and by what some steps make of it.
    """
    expected = run(jax.jit)
    with fallbacks() as messages:
        found = run(stitch_jit)
    assert not messages, messages
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = float(np.max(np.abs(b), initial=0.0)) if b.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(a, b, rtol=0, atol=precision * max(scale, 1e-3))
    return found


def batch(rows: int = 32, columns: int = 8, classes: int = 4) -> tuple[jax.Array, jax.Array]:
    """Features and labels that depend on them."""
    x = waves(rows, columns)
    return x, jnp.asarray(np.abs(np.asarray(x).sum(-1) * 3).astype(np.int32) % classes)


def waves(*shape: int) -> jax.Array:
    """Numbers that differ from place to place. By NumPy, as JAX compiles each operation by itself."""
    return jnp.asarray(np.sin(np.arange(prod(shape)) * 0.37).reshape(shape), jnp.float32)
