"""ScheduledKernel -> the kernel language -> KernelSource."""

from jax_stitch.emit.in_place import Reuse
from jax_stitch.emit.kernel import emit, kernel_of, structure
from jax_stitch.emit.refused import KernelRefused
from jax_stitch.emit.source import KernelSource

__all__ = ["KernelRefused", "KernelSource", "Reuse", "emit", "kernel_of", "structure"]
