"""Arrays and functions that the tests of the public functions share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

X = jnp.linspace(-1.0, 2.0, 12).reshape(3, 4)
W = jnp.linspace(0.5, 1.5, 4)


def softmax(x: Any, w: Any = 1.0) -> Any:
    """Has two reductions along a row: the smallest thing that XLA leaves apart on a CPU."""
    e = jnp.exp(x * w - jnp.max(x * w, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def scaled(x: Any, axis: int = -1, *, scale: float = 1.0) -> Any:
    """Softmax, scaled."""
    return jax.nn.softmax(x, axis) * scale
