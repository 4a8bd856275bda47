"""From a JAX function to XLA's optimized HLO text, for a device that is attached or only described.

``capture`` lowers a function, whose HLO is compiled when asked for; ``lower`` and ``compile_for`` compile other
programs, such as a rebuilt one, for the same devices; ``traffic.traffic`` counts kernels and bytes of optimized HLO.
"""

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

if TYPE_CHECKING:
    from jax_stitch.frontend.capture.client import cuda_plugin_installed
    from jax_stitch.frontend.capture.errors import CaptureError, CudaPluginMissing
    from jax_stitch.frontend.capture.function import Capture, capture
    from jax_stitch.frontend.capture.options import analysis_options
    from jax_stitch.frontend.capture.placement import Partitioning, Placement
    from jax_stitch.frontend.capture.program import Program, compile_for, lower

__all__ = [
    "Capture",
    "CaptureError",
    "CudaPluginMissing",
    "Partitioning",
    "Placement",
    "Program",
    "analysis_options",
    "capture",
    "compile_for",
    "cuda_plugin_installed",
    "lower",
]

if not TYPE_CHECKING:
    __getattr__ = later(
        __name__,
        {
            "Capture": "jax_stitch.frontend.capture.function",
            "CaptureError": "jax_stitch.frontend.capture.errors",
            "CudaPluginMissing": "jax_stitch.frontend.capture.errors",
            "Partitioning": "jax_stitch.frontend.capture.placement",
            "Placement": "jax_stitch.frontend.capture.placement",
            "Program": "jax_stitch.frontend.capture.program",
            "analysis_options": "jax_stitch.frontend.capture.options",
            "capture": "jax_stitch.frontend.capture.function",
            "compile_for": "jax_stitch.frontend.capture.program",
            "cuda_plugin_installed": "jax_stitch.frontend.capture.client",
            "lower": "jax_stitch.frontend.capture.program",
        },
    )
