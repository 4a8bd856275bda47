"""Calling a compiled kernel from JAX."""

from jax_stitch.launch.call import Layouts, call

__all__ = ["Layouts", "call"]
