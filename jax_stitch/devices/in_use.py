"""The GPU that JAX uses in this process, from the device table or, if it is not in there, from its driver."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax_stitch.devices import attached
from jax_stitch.devices.model import Device
from jax_stitch.devices.table import Entry, kernel_parameter_bytes

Query = Callable[[int], int]
"""Value of a ``CUdevice_attribute`` by its number in cuda.h."""

_LOADED = Path("/proc/driver/nvidia/version")
"""What Linux says of the driver that is loaded."""
_OLDEST = (12, 0)
_BRANCHES = {525: (12, 0), 530: (12, 1), 535: (12, 2), 550: (12, 4), 570: (12, 8), 580: (13, 0)}
"""The CUDA version that drivers are of, from these branches on."""

_LANES = {(7, 5): 64, (8, 0): 64}
"""f32 lanes per multiprocessor where they are not 128 (CUDA programming guide, "Arithmetic Instructions")."""


def describe(jax_device: Any, table: Mapping[str, Entry]) -> Device:
    """Return the device behind a ``jax.Device`` of the CUDA platform.

    Where the GPU is not in the table: raises ``CupyMissing`` without CuPy, ``RuntimeError`` where its driver does not
    answer.
    """
    major, _, minor = str(jax_device.compute_capability).partition(".")
    known = lookup(jax_device.device_kind, (int(major), int(minor or 0)), jax_device.core_count, table)
    device = known or build(jax_device.device_kind, driver_query(jax_device.local_hardware_id or 0))
    return with_driver(device, driver_version())


def with_driver(device: Device, version: tuple[int, int]) -> Device:
    """Return the device with what a driver of this version of CUDA lets kernels have."""
    assert device.compute_capability is not None
    taken = kernel_parameter_bytes(device.compute_capability, version)
    return replace(device, kernel_parameter_bytes=min(device.kernel_parameter_bytes, taken))


def driver_version(loaded: Path = _LOADED) -> tuple[int, int]:
    """Return the CUDA version that the driver is of; of one that does not say, the oldest that JAX runs on.

    Linux has it in a file. CuPy, which takes a second to import, is asked where that is missing.
    """
    with contextlib.suppress(OSError):
        text = loaded.read_text(encoding="utf-8", errors="replace")
        if (match := re.search(r"\b(\d{3,4})\.\d+", text)) is not None:
            known = [version for branch, version in _BRANCHES.items() if branch <= int(match[1])]
            return max(known, default=_OLDEST)
    with contextlib.suppress(attached.CupyMissing, RuntimeError):
        return max(attached.driver_version(), _OLDEST)
    return _OLDEST


def lookup(
    product: str, compute_capability: tuple[int, int], multiprocessors: int, table: Mapping[str, Entry]
) -> Device | None:
    """Return the table's device of that product name, or None.

    The number of multiprocessors keeps MIG slices and cut-down variants apart.
    """
    for entry in table.values():
        chip = entry.device.compute_capability, entry.device.multiprocessors
        if chip == (compute_capability, multiprocessors) and re.search(rf"\b{re.escape(entry.product)}\b", product):
            return replace(entry.device, attached=True)
    return None


def build(product: str, query: Query) -> Device:
    """Return a device from its driver's attributes (numbers of ``CUdevice_attribute``; clocks in kHz, bus width in
    bits).
    """
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
"""Not an attribute: the query's number for all of the memory."""


def driver_query(ordinal: int) -> Query:
    """Ask the CUDA driver, by CuPy. Raises ``CupyMissing``, and ``RuntimeError`` where it does not answer."""

    def query(number: int) -> int:
        return attached.total_memory(ordinal) if number == _TOTAL_MEMORY else attached.attribute(number, ordinal)

    return query
