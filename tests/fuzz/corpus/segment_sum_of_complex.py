"""Complex numbers summed by segments beside a kernel for a GPU: it was to write the zeros that the sums start from, and
no kernel has a type for them.
"""

import jax
import jax.numpy as jnp
import numpy as np


def f(x7, v5, v24):
    v21 = jax.ops.segment_sum(v5, x7, num_segments=1)
    v25, _ = jax.tree.leaves(jax.scipy.signal.welch(v24, nperseg=8, noverlap=2, nfft=16, axis=-2))
    return v21, v25


args = [
    np.ones((7,), jnp.int32),
    np.ones((7, 7), jnp.complex64),
    np.ones((1, 2, 5, 7), jnp.float32),
]
