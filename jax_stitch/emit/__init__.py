"""ScheduledKernel -> KernelSource."""

from jax_stitch.emit.kernel import emit, structure
from jax_stitch.emit.source import KernelSource

__all__ = ["KernelSource", "emit", "structure"]
