"""The CPU of this machine as a device: what this process may use of it, found without other programs."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from jax_stitch.devices.bandwidth import memory_bandwidth
from jax_stitch.devices.model import Device

_LANES = {"avx512f": 16, "avx2": 8, "avx": 8, "sse2": 4, "asimd": 4}
"""f32 lanes of a vector by instruction set, widest first."""
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
"""How far sizes of caches are shifted."""
_UNLIMITED = 1 << 20
"""Kernels on the host get their buffers as an array: any number fits."""


class Caches(Struct, frozen=True):
    """Bytes of the level-1 data, level-2 and last-level cache that one core reaches."""

    level1: int = 32 << 10
    level2: int = 512 << 10
    last: int = 8 << 20


@functools.cache
def cpu() -> Device:
    """Return this machine's CPU. The first call of all on a machine measures its memory bandwidth (a fraction of a
    second).
    """
    device = unmeasured()
    free = min(device.memory_bytes, free_memory())
    bandwidth = memory_bandwidth(device.description, device.multiprocessors, device.l2_bytes, free)
    return replace(device, memory_bandwidth=bandwidth)


@functools.cache
def unmeasured() -> Device:
    """Return this machine's CPU, less its memory bandwidth: at once."""
    cpuinfo = _read("/proc/cpuinfo")
    model = _model(cpuinfo)
    cores = usable_cores()
    flags = instruction_sets(cpuinfo, platform.machine())
    lanes = next((lanes for name, lanes in _LANES.items() if name in flags), 4)
    vector_registers = 32 if lanes == 16 or "asimd" in flags else 16
    caches = cache_sizes()
    memory = usable_memory()
    return Device(
        name="cpu",
        kind="cpu",
        description=model,
        compute_capability=None,
        multiprocessors=cores,
        threads_per_multiprocessor=1024,
        threads_per_block=1024,
        warp_size=lanes,
        registers_per_multiprocessor=vector_registers * lanes,
        shared_per_block=caches.level1,
        shared_per_block_optin=caches.level2,
        shared_per_multiprocessor=caches.level2,
        l2_bytes=caches.last,
        memory_bytes=memory,
        memory_bandwidth=0.0,
        clock_ghz=_clock_ghz(cpuinfo),
        fp32_lanes=lanes,
        kernel_parameter_bytes=_UNLIMITED,
        attached=True,
    )


def usable_cores(root: Path = Path("/")) -> int:
    """Return the cores that this process can keep busy: its affinity mask, cut by the CPU quota of its control groups.

    ``root`` is where the files of those are looked for.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _control_groups(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")  # version 2: "max 100000" or "150000 100000"
        if not period:  # version 1
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.strip().isdigit() and int(period or 0) > 0:
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def usable_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory, cut by the limits of the control groups."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _control_groups(root, "memory"):
        for limit in (_read(folder / "memory.max"), _read(folder / "memory.limit_in_bytes")):
            if limit.strip().isdigit():
                memory = min(memory, int(limit))
    return memory


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that the system can give without swapping; all of it where it does not tell."""
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return usable_memory(root)


def instruction_sets(cpuinfo: str, machine: str) -> frozenset[str]:
    """Return the flags of the first processor in Linux's /proc/cpuinfo; elsewhere what every ``machine`` of its kind
    has.
    """
    if flags := _values(cpuinfo, "flags", "Features"):
        return frozenset(flags[0].split())
    return frozenset({"asimd"} if machine in ("arm64", "aarch64") else {"sse2"})


def cache_sizes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> Caches:
    """Return what Linux's sysfs says; typical figures where there is none (macOS, some containers)."""
    sizes: dict[int, int] = {}
    for index in folder.glob("index*"):
        level, kind, size = (_read(index / name).strip() for name in ("level", "type", "size"))
        amount = size.rstrip("KMG")
        if kind in ("Data", "Unified") and level.isdigit() and amount.isdigit() and size[len(amount) :] in _UNITS:
            sizes[int(level)] = int(amount) << _UNITS[size[len(amount) :]]
    typical = Caches()
    level1, level2 = sizes.get(1, typical.level1), sizes.get(2, typical.level2)
    return Caches(level1, level2, last=max(sizes.values()) if len(sizes) > 1 else max(typical.last, level2))


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of every group around it that limit what ``controller``
    does, under both versions' layouts.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        folder = mount / group.lstrip("/")
        yield from (folder, *(parent for parent in folder.parents if parent.is_relative_to(mount)))


def _model(cpuinfo: str) -> str:
    names = _values(cpuinfo, "model name")
    return names[0] if names else platform.processor() or platform.machine()


def _clock_ghz(cpuinfo: str) -> float:
    highest = _read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()  # kHz
    if highest.isdigit():
        return int(highest) / 1e6
    current = [float(mhz) for mhz in _values(cpuinfo, "cpu MHz") if mhz.replace(".", "", 1).isdigit()]
    return max(current) / 1e3 if current else 2.5


def _values(cpuinfo: str, *names: str) -> list[str]:
    """Return what each processor says of one of these. Without patterns: to compile them takes a millisecond."""
    fields = (line.partition(":") for line in cpuinfo.splitlines() if line.startswith(names))
    return [value.strip() for name, _, value in fields if name.strip() in names]


def _read(path: str | Path) -> str:
    """Return a system file's text; empty where it cannot be read. Dozens are looked for before a process's first
    result.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return ""
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b"")).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
