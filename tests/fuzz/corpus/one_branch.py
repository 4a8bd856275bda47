"""A conditional of one branch in a loop, as JAX writes it before XLA's passes: failed while it was planned."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def f(v):
    def step(w):
        return jnp.diag(jnp.minimum(w, jnp.full((1, 1), 10.0, jnp.float32)), 0).reshape((1, 1))

    return jax.grad(lambda start: jnp.sum(lax.scan(lambda c, _: (step(c), c), start, None, length=2)[1]))(v)


args = [np.ones((1, 1), np.float32)]
