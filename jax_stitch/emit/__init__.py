"""ScheduledKernel -> the kernel language -> KernelSource."""

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

if TYPE_CHECKING:
    from jax_stitch.emit.in_place import Reuse
    from jax_stitch.emit.kernel import emit, for_target, kernel_of, structure
    from jax_stitch.emit.refused import KernelRefused
    from jax_stitch.emit.source import KernelSource
    from jax_stitch.emit.sources import Sources

__all__ = ["KernelRefused", "KernelSource", "Reuse", "Sources", "emit", "for_target", "kernel_of", "structure"]

if not TYPE_CHECKING:
    __getattr__ = later(
        __name__,
        {
            "KernelRefused": "jax_stitch.emit.refused",
            "KernelSource": "jax_stitch.emit.source",
            "Reuse": "jax_stitch.emit.in_place",
            "Sources": "jax_stitch.emit.sources",
            "emit": "jax_stitch.emit.kernel",
            "for_target": "jax_stitch.emit.kernel",
            "kernel_of": "jax_stitch.emit.kernel",
            "structure": "jax_stitch.emit.kernel",
        },
    )
