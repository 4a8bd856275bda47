"""A masked softmax beside running sums of the same row: parts of one kernel read each other in a circle."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def f(x0, x1, x2):
    v1 = jax.nn.softmax(x0, where=x1.astype(jnp.bool_))
    v2 = jnp.logical_xor.accumulate(lax.erfc(x0), axis=-1)
    return jnp.clip(x2), v2, v1


args = [np.ones(128, np.float32), np.random.default_rng(285).standard_normal(128).astype(np.float16), np.uint32(0)]
