"""The GPUs that are known without being attached, from the files in ``specs/``."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from msgspec import Struct

from jax_stitch.devices.model import Device


class Entry(Struct, frozen=True):
    """One row of the table: the device, and the words of its product name by which an attached one is recognised."""

    device: Device
    product: str


def kernel_parameter_bytes(compute_capability: tuple[int, int], cuda: tuple[int, int] = (12, 1)) -> int:
    """Return 4 KB, or 32,764 bytes from sm_70 on if both compiler and driver are of CUDA 12.1 (PTX 8.1) or later."""
    return 32764 if compute_capability >= (7, 0) and cuda >= (12, 1) else 4096


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Return the table by device name, in the order of ``specs/devices.toml``.

    Read when first asked for: a process that stays on its CPU has no use for it, and it takes some ten milliseconds.
    """
    specs = resources.files(__package__) / "specs"
    rows = tomllib.loads((specs / "devices.toml").read_text(encoding="utf-8"))
    return MappingProxyType(
        {name: _entry(name, row, (specs / f"{name}.txtpb").read_text(encoding="utf-8")) for name, row in rows.items()}
    )


def _entry(name: str, row: Mapping[str, str], config: str) -> Entry:
    compute_capability = _compute_capability(config)
    device = Device(
        name=name,
        kind="cuda",
        description=row["description"],
        compute_capability=compute_capability,
        multiprocessors=_number(config, "core_count"),
        threads_per_multiprocessor=_number(config, "threads_per_core_limit"),
        threads_per_block=_number(config, "threads_per_block_limit"),
        warp_size=_number(config, "threads_per_warp"),
        registers_per_multiprocessor=_number(config, "registers_per_core_limit"),
        shared_per_block=_number(config, "shared_memory_per_block"),
        shared_per_block_optin=_number(config, "shared_memory_per_block_optin"),
        shared_per_multiprocessor=_number(config, "shared_memory_per_core"),
        l2_bytes=_number(config, "l2_cache_size"),
        memory_bytes=_number(config, "device_memory_size"),
        memory_bandwidth=float(_number(config, "memory_bandwidth")),
        clock_ghz=float(_text(config, "clock_rate_ghz")),
        fp32_lanes=_number(config, "fpus_per_core"),
        kernel_parameter_bytes=kernel_parameter_bytes(compute_capability),
        target_config=config,
    )
    return Entry(device, row["product"])


def _compute_capability(config: str) -> tuple[int, int]:
    message = re.search(r"cuda_compute_capability\s*{([^}]*)}", config)
    if message is None:
        raise ValueError("a device specification lacks its compute capability")
    minor = re.search(r"\bminor:\s*(\d+)", message.group(1))  # Text protos leave out zeros.
    return _number(message.group(1), "major"), int(minor.group(1)) if minor else 0


def _number(config: str, field: str) -> int:
    return int(_text(config, field))


def _text(config: str, field: str) -> str:
    """Return a scalar field of the text proto."""
    match = re.search(rf"\b{field}:\s*([^\s}}]+)", config)
    if match is None:
        raise ValueError(f"a device specification lacks the field {field}")
    return match.group(1)
