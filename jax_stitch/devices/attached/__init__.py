"""An attached GPU without XLA, by CuPy: its properties, loading a kernel and launching it, times by events, occupancy.

Nothing else in the package imports CuPy. It is imported when it is first needed, which takes a second, and a program
that only runs its kernels never needs it: XLA launches them.
"""

from jax_stitch.devices.attached.events import copy_bandwidth, elapsed
from jax_stitch.devices.attached.function import Function, load
from jax_stitch.devices.attached.properties import attribute, driver_version, total_memory
from jax_stitch.devices.attached.provided import CupyMissing, cupy, is_usable

__all__ = [
    "CupyMissing",
    "Function",
    "attribute",
    "copy_bandwidth",
    "cupy",
    "driver_version",
    "elapsed",
    "is_usable",
    "load",
    "total_memory",
]
