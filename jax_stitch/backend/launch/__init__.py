"""Calling a compiled kernel from JAX."""

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

if TYPE_CHECKING:
    from jax_stitch.backend.launch.host_call import Part
    from jax_stitch.backend.launch.kernel_call import SENTINEL, Layouts, call, call_in_turn, runs

__all__ = ["SENTINEL", "Layouts", "Part", "call", "call_in_turn", "runs"]

if not TYPE_CHECKING:
    __getattr__ = later(
        __name__,
        {
            "Layouts": "jax_stitch.backend.launch.kernel_call",
            "Part": "jax_stitch.backend.launch.host_call",
            "SENTINEL": "jax_stitch.backend.launch.kernel_call",
            "call": "jax_stitch.backend.launch.kernel_call",
            "call_in_turn": "jax_stitch.backend.launch.kernel_call",
            "runs": "jax_stitch.backend.launch.kernel_call",
        },
    )
