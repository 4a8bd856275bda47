"""What a GPU's driver says of it. Numbers of attributes are those of ``CUdevice_attribute`` (``cuda.h``)."""

from __future__ import annotations

from jax_stitch.devices.attached.provided import cupy


def attribute(number: int, ordinal: int = 0) -> int:
    """Raise ``CupyMissing``, and ``RuntimeError`` where the driver does not answer."""
    return int(cupy().cuda.runtime.deviceGetAttribute(number, ordinal))


def total_memory(ordinal: int = 0) -> int:
    """Return bytes. Raises as ``attribute`` does."""
    return int(cupy().cuda.runtime.getDeviceProperties(ordinal)["totalGlobalMem"])


def driver_version() -> tuple[int, int]:
    """Return the CUDA version that the driver is of; (0, 0) where there is none. Raises ``CupyMissing``."""
    version = int(cupy().cuda.runtime.driverGetVersion())
    return version // 1000, version % 1000 // 10
