"""The checking mode: a kernel scheduled for a GPU, run slowly on the CPU with every access looked at.

``check`` runs one kernel on arrays; ``check_function`` runs a whole stitched function and checks each of its kernels on
what it is given there. Both tell what CUDA would forbid or make slow, and how many sectors of memory were touched.
"""

from jax_stitch.checking.check import check
from jax_stitch.checking.findings import BufferTraffic, Checked, Finding, Findings, Kind
from jax_stitch.checking.function import CheckedFunction, check_function

__all__ = [
    "BufferTraffic",
    "Checked",
    "CheckedFunction",
    "Finding",
    "Findings",
    "Kind",
    "check",
    "check_function",
]
