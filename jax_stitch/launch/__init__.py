"""Calling a compiled kernel from JAX."""

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

if TYPE_CHECKING:
    from jax_stitch.launch.kernel_call import SENTINEL, Layouts, call

__all__ = ["SENTINEL", "Layouts", "call"]

if not TYPE_CHECKING:
    __getattr__ = later(
        __name__,
        {
            "Layouts": "jax_stitch.launch.kernel_call",
            "SENTINEL": "jax_stitch.launch.kernel_call",
            "call": "jax_stitch.launch.kernel_call",
        },
    )
