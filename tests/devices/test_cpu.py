"""What is found of the machine's CPU, and the measured figure's life in the cache."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.devices import bandwidth
from jax_stitch.devices.cpu import cache_sizes, instruction_sets, usable_cores, usable_memory


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_this_machine() -> None:
    device = devices.get("cpu")
    assert device.attached and device.compute_capability is None and device.sm is None
    assert 1 <= device.multiprocessors <= (os.cpu_count() or 1)
    assert device.warp_size in (4, 8, 16)
    assert device.shared_per_block <= device.shared_per_block_optin <= device.l2_bytes
    assert 1e9 < device.memory_bandwidth < 5e12


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity masks here")
def test_cores_respect_the_affinity_mask() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000",
        },
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000"},
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/job\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
        },
    ],
)
def test_cores_respect_control_groups(tmp_path: Path, files: dict[str, str]) -> None:
    _write(tmp_path, files)
    assert usable_cores(tmp_path) == 1


def test_no_quota_is_no_limit(tmp_path: Path) -> None:
    free = usable_cores(tmp_path)
    _write(tmp_path, {"proc/self/cgroup": "0::/\n3:cpu:/x\n", "sys/fs/cgroup/cpu.max": "max 100000"})
    _write(tmp_path, {"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000"})
    assert usable_cores(tmp_path) == free


def test_memory_respects_control_groups(tmp_path: Path) -> None:
    _write(tmp_path, {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "1048576\n"})
    assert usable_memory(tmp_path) == 1048576
    _write(tmp_path, {"sys/fs/cgroup/job/memory.max": "max\n"})
    assert usable_memory(tmp_path) > 1048576


def test_caches_from_sysfs(tmp_path: Path) -> None:
    rows = [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M"), ("3", "Unified", "36864K")]
    for i, (level, kind, size) in enumerate(rows):
        _write(tmp_path, {f"index{i}/level": level, f"index{i}/type": f"{kind}\n", f"index{i}/size": f"{size}\n"})
    caches = cache_sizes(tmp_path)
    assert (caches.level1, caches.level2, caches.last) == (48 << 10, 2 << 20, 36 << 20)


def test_caches_where_the_system_says_nothing(tmp_path: Path) -> None:
    caches = cache_sizes(tmp_path)
    assert 0 < caches.level1 < caches.level2 < caches.last


def test_instruction_sets() -> None:
    assert "avx2" in instruction_sets("processor : 0\nflags\t\t: fpu sse2 avx2\n", "x86_64")
    assert "asimd" in instruction_sets("Features\t: fp asimd\n", "aarch64")
    assert instruction_sets("", "arm64") == {"asimd"}


def test_bandwidth_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    calls: list[int] = []
    monkeypatch.setattr(bandwidth, "measure", lambda cores, block: calls.append(block) or 2e10)
    arguments = ("a cpu", 2, 32 << 20, 16 << 30)
    assert bandwidth.memory_bandwidth(*arguments) == bandwidth.memory_bandwidth(*arguments) == 2e10
    assert calls == [32 << 20]
    assert bandwidth.memory_bandwidth("another cpu", *arguments[1:]) == 2e10
    assert len(calls) == 2, "another machine on a shared file system measures for itself"


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff"])
def test_a_damaged_entry_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(bandwidth, "measure", lambda cores, block: 2e10)
    bandwidth.memory_bandwidth("a cpu", 2, 1 << 20, 16 << 30)
    (entry,) = (tmp_path / "devices").iterdir()
    good = entry.read_bytes()
    entry.write_bytes(damage)
    assert bandwidth.memory_bandwidth("a cpu", 2, 1 << 20, 16 << 30) == 2e10
    assert entry.read_bytes() == good


def test_the_measurement_is_plausible_and_short() -> None:
    assert 1e8 < bandwidth.measure(2, 8 << 20) < 5e12


def test_it_leaves_out_what_others_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for its turn says nothing of the memory; the figure is kept for good."""

    def waits(target: Any, source: Any) -> None:
        np.copyto(target, source)
        time.sleep(0.2)

    monkeypatch.setattr(bandwidth, "np", SimpleNamespace(**vars(np) | {"copyto": waits}))
    assert bandwidth.measure(2, 8 << 20) > 2 * (8 << 20) / 0.2
