"""From a JAX function to XLA's optimized HLO text, for a device that is attached or only described.

``capture`` lowers a function, whose HLO is compiled when asked for; ``lower`` and ``compile_for`` compile other
programs, such as a rebuilt one, for the same devices; ``traffic.traffic`` counts kernels and bytes of optimized HLO.
"""

from jax_stitch.capture.client import cuda_plugin_installed
from jax_stitch.capture.errors import CaptureError, CudaPluginMissing
from jax_stitch.capture.function import Capture, capture
from jax_stitch.capture.options import analysis_options
from jax_stitch.capture.placement import Partitioning, Placement
from jax_stitch.capture.program import Program, compile_for, lower

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
