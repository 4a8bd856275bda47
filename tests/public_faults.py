"""Functions that cannot be stitched, and a stage that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

X = jnp.linspace(-1.0, 2.0, 12).reshape(3, 4)


def softmax(x: Any) -> Any:
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def fresh(number: float) -> Callable[[Any], Any]:
    """A function that nothing has been compiled for yet, if the number is new."""

    def fun(x: Any) -> Any:
        return softmax(x * number)

    return fun


def mutating(x: Any) -> Any:
    held = jax.new_ref(x)
    held[...] = softmax(held[...])
    return held[...]


def broken(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("a defect")
