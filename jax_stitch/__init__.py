"""JAX Stitch: ``stitch_jit`` is ``jax.jit`` that re-fuses what XLA fused."""

from jax_stitch.api import stitch, stitch_jit
from jax_stitch.compare import compare

__all__ = ["compare", "stitch", "stitch_jit"]
