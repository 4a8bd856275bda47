"""A few stitched workloads, run once each and small, for `compute-sanitizer`: ``python -m bench.sanitized``."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp

from bench.workloads import ALL
from jax_stitch.api import stitch_jit

CHOSEN = (
    *("layer_norm", "layer_norm_gradient", "softmax_first", "softmax_long_row", "cross_entropy_gradient"),
    *("residual_dropout_layer_norm", "adamw_clipped", "cart_pole_rng"),
)
"""Each way in which parts of a kernel meet, a packed kernel and a loop."""


def main() -> int:
    """Runs them at an uneven size; what is wrong is for the sanitizer to say."""
    for name in CHOSEN:
        function, args = ALL[name].make(ALL[name].test_sizes[1], jnp.float32)
        jax.block_until_ready(stitch_jit(function)(*args))
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
