"""The GPU that JAX uses in this process, from the device table or, if it is not in there, from its driver."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jax_stitch.devices.model import Device
from jax_stitch.devices.table import Entry, kernel_parameter_bytes

Query = Callable[[int], int]
"""Value of a ``CUdevice_attribute`` by its number in cuda.h."""

_LANES = {(7, 5): 64, (8, 0): 64}
"""f32 lanes per multiprocessor where they are not 128 (CUDA programming guide, "Arithmetic Instructions")."""


def describe(jax_device: Any, table: Mapping[str, Entry]) -> Device:
    """The device behind a ``jax.Device`` of the CUDA platform.

    Raises ``RuntimeError`` where the GPU is not in the table and its driver does not answer.
    """
    major, _, minor = str(jax_device.compute_capability).partition(".")
    known = lookup(jax_device.device_kind, (int(major), int(minor or 0)), jax_device.core_count, table)
    found = known or build(jax_device.device_kind, driver_query(jax_device.local_hardware_id or 0))
    return with_driver(found, driver_version())


def with_driver(device: Device, version: tuple[int, int]) -> Device:
    """The device with what a driver of this version of CUDA lets kernels have."""
    assert device.compute_capability is not None
    taken = kernel_parameter_bytes(device.compute_capability, version)
    return replace(device, kernel_parameter_bytes=min(device.kernel_parameter_bytes, taken))


def driver_version() -> tuple[int, int]:
    """The CUDA version that the driver is of; of one that does not say, the oldest that JAX runs on."""
    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) != 0:
            return 12, 0
    except OSError:
        return 12, 0
    return version.value // 1000, version.value % 1000 // 10


def lookup(
    product: str, compute_capability: tuple[int, int], multiprocessors: int, table: Mapping[str, Entry]
) -> Device | None:
    """The table's device of that product name, or None.

    The number of multiprocessors keeps MIG slices and cut-down variants apart.
    """
    for entry in table.values():
        chip = entry.device.compute_capability, entry.device.multiprocessors
        if chip == (compute_capability, multiprocessors) and re.search(rf"\b{re.escape(entry.product)}\b", product):
            return replace(entry.device, attached=True)
    return None


def build(product: str, query: Query) -> Device:
    """A device from its driver's attributes (numbers of ``CUdevice_attribute``; clocks in kHz, bus width in bits)."""
    compute_capability = (query(75), query(76))
    return Device(
        name=re.sub(r"[^a-z0-9]+", "-", product.lower().removeprefix("nvidia ")).strip("-"),
        kind="cuda",
        description=product,
        compute_capability=compute_capability,
        multiprocessors=query(16),
        threads_per_multiprocessor=query(39),
        threads_per_block=query(1),
        warp_size=query(10),
        registers_per_multiprocessor=query(82),
        shared_per_block=query(8),
        shared_per_block_optin=query(97),
        shared_per_multiprocessor=query(81),
        l2_bytes=query(38),
        memory_bytes=query(_TOTAL_MEMORY),
        # Two transfers per clock on every kind of GPU memory that the driver reports in this way.
        memory_bandwidth=2.0 * query(36) * 1e3 * query(37) / 8,
        clock_ghz=query(13) / 1e6,
        fp32_lanes=_LANES.get(compute_capability, 128),
        kernel_parameter_bytes=kernel_parameter_bytes(compute_capability),
        attached=True,
    )


_TOTAL_MEMORY = -1
"""Not an attribute: the query's number for ``cuDeviceTotalMem``."""


def driver_query(ordinal: int) -> Query:
    """Asks the CUDA driver itself, which is there wherever JAX has a GPU; no package is needed."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RuntimeError(f"JAX reports a GPU, but the CUDA driver library cannot be loaded: {error}") from error

    def check(call: str, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"the CUDA driver failed {call} for GPU {ordinal} with error {status}")

    device = ctypes.c_int()
    check("cuInit", driver.cuInit(0))
    check("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), ordinal))

    def query(attribute: int) -> int:
        if attribute == _TOTAL_MEMORY:
            total = ctypes.c_size_t()
            check("cuDeviceTotalMem", driver.cuDeviceTotalMem_v2(ctypes.byref(total), device))
            return total.value
        value = ctypes.c_int()
        check(f"cuDeviceGetAttribute({attribute})", driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device))
        return value.value

    return query
