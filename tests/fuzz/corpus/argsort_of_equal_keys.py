"""An unstable sort leaves equal keys in any order: the second opinion took ours for a wrong result."""

import jax.numpy as jnp
import numpy as np


def f(x):
    return (jnp.argsort(x, stable=False),)


args = [np.ones((33,), np.uint8)]
