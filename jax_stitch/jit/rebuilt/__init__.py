"""A function rebuilt around its stitched kernels, as StableHLO: made once, kept on disk, put into JAX's own programs.

A process that finds the program of a function on disk neither analyses nor plans nor compiles anything for it.
"""

from jax_stitch.jit.rebuilt.find import rebuild

__all__ = ["rebuild"]
