"""Which compiler makes kernels for a device, and for which processor: kernels of another are others."""

from __future__ import annotations

from jax_stitch.backend.compile import nvrtc, toolchain
from jax_stitch.devices import Device


def compilers(device: Device) -> dict[str, object]:
    """Return the compilers as JSON values."""
    return {
        "compiler": toolchain.stamp() if device.target.is_host else nvrtc.stamp(),
        "processor": toolchain.processor() if device.target.is_host else None,
        "machine": toolchain.machine() if device.target.is_host else None,
    }
