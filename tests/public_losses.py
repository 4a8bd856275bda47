"""Functions to differentiate, and their arguments."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from tests.public_functions import softmax

V = jnp.linspace(1.0, -1.0, 12).reshape(3, 4)


def loss(x: Any, w: Any) -> Any:
    return jnp.sum(jnp.log1p(softmax(x, w)) ** 2)
