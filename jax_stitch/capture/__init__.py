"""From a JAX function to XLA's optimized HLO text, for a device that is attached or only described.

``capture`` compiles a function for planning; ``traffic`` counts the kernels and bytes of any optimized HLO; ``lower``
and ``compile_for`` compile other programs, such as a rebuilt one, for the same devices.
"""

from jax_stitch.capture.client import cuda_plugin_installed
from jax_stitch.capture.errors import CaptureError, CudaPluginMissing
from jax_stitch.capture.function import Capture, capture
from jax_stitch.capture.options import analysis_options
from jax_stitch.capture.placement import Partitioning, Placement
from jax_stitch.capture.program import Program, compile_for, lower
from jax_stitch.capture.traffic import KernelTraffic, Traffic, traffic

__all__ = [
    "Capture",
    "CaptureError",
    "CudaPluginMissing",
    "KernelTraffic",
    "Partitioning",
    "Placement",
    "Program",
    "Traffic",
    "analysis_options",
    "capture",
    "compile_for",
    "cuda_plugin_installed",
    "lower",
    "traffic",
]
