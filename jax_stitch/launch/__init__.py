"""Calling a compiled kernel from JAX."""

from jax_stitch.launch.call import SENTINEL, Layouts, call

__all__ = ["SENTINEL", "Layouts", "call"]
