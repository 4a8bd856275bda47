"""A sort of which others read the first place alone was written out whole, though only that place was in order."""

import jax.numpy as jnp
import numpy as np
from jax import lax


def f(k, x):
    def first(y):
        return jnp.resize(jnp.argpartition(y, 0, 1), ()).astype(jnp.float32)

    return lax.switch(k, [lambda y: y[0, 0], first], x)


args = [np.int32(1), np.random.default_rng(0).standard_normal((33, 33)).astype(np.float32)]
