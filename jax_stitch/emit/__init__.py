"""ScheduledKernel -> the kernel language -> KernelSource."""

from jax_stitch.emit.kernel import emit, kernel_of, structure
from jax_stitch.emit.source import KernelSource

__all__ = ["KernelSource", "emit", "kernel_of", "structure"]
