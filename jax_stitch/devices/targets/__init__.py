"""The kinds of devices that kernels are made for, and what differs between them.

``target_of`` is the one place that asks which kind a device is. Everything else reads a property of its target, which
says what it is that differs.
"""

from jax_stitch.devices.targets.cuda import CUDA
from jax_stitch.devices.targets.host import HOST
from jax_stitch.devices.targets.model import Kind, Target

__all__ = ["Kind", "Target", "target_of"]


def target_of(kind: Kind) -> Target:
    """Return the target of devices of this kind."""
    return CUDA if kind == "cuda" else HOST
