"""What Adam needs at every precision, without the packages of networks and optimizers."""

from __future__ import annotations

import jax.numpy as jnp
from jax.typing import DTypeLike


def adam_epsilon(dtype: DTypeLike) -> float:
    """Return Optax's 1e-8, or the smallest normal number of ``dtype``: float16 rounds 1e-8 to 0, and many a
    second moment.
    """
    return max(1e-8, float(jnp.finfo(dtype).tiny))
