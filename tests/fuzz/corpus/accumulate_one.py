"""A loop of one step that stacks one element: the kernel read its own output before it wrote it."""

import jax.numpy as jnp
import numpy as np


def f(x):
    y = jnp.bitwise_or.accumulate(x, axis=-1)
    return y, y[None]


args = [np.array([5], np.int32)]
