"""CPUs as devices: this machine's, of which all is found without other programs, and some that are only described."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

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


CPU_VARIABLE = "JAX_STITCH_CPU"
"""The environment variable that names the described CPU which this machine's is taken for: so tests see the plans of
other processors. Kernels are compiled for this machine all the same."""


def cpu() -> Device:
    """Return this machine's CPU. The first call of all on a machine measures its memory bandwidth, in a fraction of a
    second.
    """
    device = unmeasured()
    return device if device.memory_bandwidth else measured()


@functools.cache
def measured() -> Device:
    """Return this machine's own CPU with its memory bandwidth."""
    device = _found()
    free = min(device.memory_bytes, free_memory())
    bandwidth = memory_bandwidth(device.description, device.multiprocessors, device.l2_bytes, free)
    return replace(device, memory_bandwidth=bandwidth)


def unmeasured() -> Device:
    """Return this machine's CPU, less its memory bandwidth: at once. Raises ``ValueError`` where ``$JAX_STITCH_CPU``
    names none that is described.
    """
    wanted = os.environ.get(CPU_VARIABLE)
    if not wanted:
        return _found()
    if wanted not in described():
        raise ValueError(f"{CPU_VARIABLE} is {wanted!r}: write one of {', '.join(described())}, or leave it unset.")
    return replace(described()[wanted], name="cpu", attached=True)


@functools.cache
def described() -> Mapping[str, Device]:
    """Return the CPUs that are described, by name."""
    import tomllib  # A process that stays on its own CPU has no use for either.
    from importlib import resources

    text = (resources.files(__package__) / "specs" / "cpus.toml").read_text(encoding="utf-8")
    return MappingProxyType({name: _described(name, row) for name, row in tomllib.loads(text).items()})


def _described(name: str, row: Mapping[str, Any]) -> Device:
    caches = Caches(row["level1"], row["level2"], row["last"])
    lanes = row["lanes"]
    device = _device(row["description"], row["cores"], lanes, row["vector_registers"], caches)
    return replace(
        device,
        name=name,
        fp32_lanes=row.get("unit_lanes", lanes),
        memory_bytes=row["memory"],
        memory_bandwidth=row["bandwidth"],
        clock_ghz=row["clock_ghz"],
        attached=False,
    )


@functools.cache
def _found() -> Device:
    cpuinfo = _read("/proc/cpuinfo")
    flags = instruction_sets(cpuinfo, platform.machine())
    lanes = next((lanes for name, lanes in _LANES.items() if name in flags), 4)
    vector_registers = 32 if lanes == 16 or "asimd" in flags else 16
    device = _device(_model(cpuinfo), usable_cores(), lanes, vector_registers, cache_sizes())
    units = unit_lanes(cpuinfo, lanes)
    return replace(device, fp32_lanes=units, memory_bytes=usable_memory(), clock_ghz=_clock_ghz(cpuinfo))


def _device(description: str, cores: int, lanes: int, vector_registers: int, caches: Caches) -> Device:
    """Return a CPU in the words of a GPU, less its memory and its clock."""
    return Device(
        name="cpu",
        kind="cpu",
        description=description,
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
        memory_bytes=0,
        memory_bandwidth=0.0,
        clock_ghz=0.0,
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
    """Return the first processor's flags in Linux's /proc/cpuinfo; elsewhere what every ``machine`` of its kind has."""
    if flags := _values(cpuinfo, "flags", "Features"):
        return frozenset(flags[0].split())
    return frozenset({"asimd"} if machine in ("arm64", "aarch64") else {"sse2"})


_ZEN4_FAMILY = "25"
"""AMD's family of Zen 3, which has no vectors of 512 bits, and of Zen 4, which has."""


def unit_lanes(cpuinfo: str, lanes: int) -> int:
    """Return the f32 lanes of a vector unit: half of those of a vector on a Zen 4, whose units take a vector of 512
    bits in two halves (AMD, Software Optimization Guide for the Zen 4 Microarchitecture).
    """
    family = [*_values(cpuinfo, "vendor_id")[:1], *_values(cpuinfo, "cpu family")[:1]]
    return lanes // 2 if lanes == _LANES["avx512f"] and family == ["AuthenticAMD", _ZEN4_FAMILY] else lanes


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
    """Return the folders of this process's control group and of every group around it that limit what ``controller``
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
    """Return what each processor says under one of these names. No patterns: to compile them takes a millisecond."""
    fields = (line.partition(":") for line in cpuinfo.splitlines() if line.startswith(names))
    return [value.strip() for name, _, value in fields if name.strip() in names]


def _read(path: str | Path) -> str:
    """Return a system file's text; empty where it cannot be read. Dozens are looked for before the first result."""
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
