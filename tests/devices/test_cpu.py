"""What is found of the machine's CPU, and the measured figure's life in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.devices import bandwidth
from jax_stitch.devices.cpu import (
    CPU_VARIABLE,
    cache_sizes,
    described,
    free_memory,
    instruction_sets,
    unit_lanes,
    usable_cores,
    usable_memory,
)
from jax_stitch.util.child import ChildDied, ChildFailed

ROOT = Path(__file__).resolve().parents[2]


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CPU_VARIABLE, raising=False)
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


def _cpuinfo(vendor: str, family: int) -> str:
    return f"vendor_id\t: {vendor}\ncpu family\t: {family}\nflags\t\t: avx2 avx512f\n\nvendor_id\t: {vendor}\n"


@pytest.mark.parametrize(
    ("cpuinfo", "lanes", "units"),
    [
        (_cpuinfo("AuthenticAMD", 25), 16, 8),  # Zen 4
        (_cpuinfo("AuthenticAMD", 25), 8, 8),  # Zen 3, of the same family
        (_cpuinfo("AuthenticAMD", 26), 16, 16),  # Zen 5
        (_cpuinfo("GenuineIntel", 6), 16, 16),
        ("Features\t: fp asimd\n", 4, 4),
        ("", 4, 4),
    ],
)
def test_a_zen_4_takes_a_vector_in_two_halves(cpuinfo: str, lanes: int, units: int) -> None:
    assert unit_lanes(cpuinfo, lanes) == units


def test_clocks_of_a_vector() -> None:
    clocks = {name: device.clocks_per_vector for name, device in described().items()}
    assert clocks == {"zen3": 1, "zen4": 2, "sapphire-rapids": 1, "haswell": 1, "neoverse-n1": 1}


def test_bandwidth_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    calls: list[int] = []
    monkeypatch.setattr(bandwidth, "_measured", lambda cores, block: calls.append(block) or 2e10)
    arguments = ("a cpu", 2, 32 << 20, 16 << 30)
    assert bandwidth.memory_bandwidth(*arguments) == bandwidth.memory_bandwidth(*arguments) == 2e10
    assert calls == [32 << 20]
    assert bandwidth.memory_bandwidth("another cpu", *arguments[1:]) == 2e10
    assert len(calls) == 2, "another machine on a shared file system measures for itself"


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff"])
def test_a_damaged_entry_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(bandwidth, "_measured", lambda cores, block: 2e10)
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


PEAK = """
import importlib, resource, sys
import jax, jax.numpy as jnp
if sys.argv[1] == "plain":
    function = jax.jit(lambda x: jax.nn.softmax(jax.nn.softmax(x)) * 2)
else:
    from jax_stitch import stitch_jit
    cpu = importlib.import_module("jax_stitch.devices.cpu")
    cpu.cache_sizes = lambda: cpu.Caches(last=512 << 20)
    function = stitch_jit(lambda x: jax.nn.softmax(jax.nn.softmax(x)) * 2, mode=sys.argv[1])
x = jnp.ones((64, 96))
for _ in range(20):
    function(x)
if sys.argv[1] != "plain":
    assert function.wait(300)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def peak(mode: str, cache: Path) -> int:
    """Return the most megabytes that a process has had in memory which measures the bandwidth first."""
    environment = os.environ | {"JAX_STITCH_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PEAK, mode]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    return int(found.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere other units, and no limits of memory")
def test_a_first_call_takes_little_memory(tmp_path: Path) -> None:
    """Catches: two arrays as large as a large cache in the user's process (500 MB), where memory is often limited."""
    plain = peak("plain", tmp_path / "plain")
    for mode in ("now", "auto"):
        cache = tmp_path / mode
        assert peak(mode, cache) < plain + 150
        assert list(cache.glob("devices/bandwidth-*")), "it was measured"


def test_it_is_measured_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """And means the same there."""
    usual, started = bandwidth.Child, []

    def child(*args: Any) -> Any:
        started.append(usual(*args))
        return started[-1]

    monkeypatch.setattr(bandwidth, "Child", child)
    monkeypatch.setattr(bandwidth, "measure", lambda *_: pytest.fail("measured here"))
    assert 1e8 < bandwidth._measured(2, 8 << 20) < 5e12
    assert len(started) == 1 and not started[0].alive


@pytest.mark.parametrize("failure", [ChildFailed("cannot be started"), ChildDied("died (exit status 9)")])
def test_without_another_process_it_takes_little(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that has no interpreter of its own."""

    def fail(*_: Any) -> Any:
        raise failure

    sizes: list[int] = []
    monkeypatch.setattr(bandwidth, "Child", fail)
    monkeypatch.setattr(bandwidth, "measure", lambda cores, block: sizes.append(block) or 2e10)
    assert bandwidth._measured(2, 256 << 20) == 2e10 and sizes == [32 << 20]


@pytest.mark.parametrize(
    ("cache", "free", "block"),
    [
        (32 << 20, 16 << 30, 32 << 20),
        (1 << 30, 64 << 30, 256 << 20),
        (256 << 20, 1 << 30, 64 << 20),
        (1 << 20, 64 << 20, 4 << 20),
    ],
)
def test_the_size_of_its_arrays(
    cache: int, free: int, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache's, within what is free."""
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    sizes: list[int] = []
    monkeypatch.setattr(bandwidth, "_measured", lambda cores, block: sizes.append(block) or 2e10)
    bandwidth.memory_bandwidth("a cpu", 2, cache, free)
    assert sizes == [block]


def test_free_memory(tmp_path: Path) -> None:
    assert 0 < free_memory() <= 1 << 50
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  8 kB\nMemAvailable:       4 kB\n")
    assert free_memory(tmp_path) == 4096
    (tmp_path / "proc/meminfo").write_text("MemTotal:  8 kB\n")
    assert free_memory(tmp_path) == usable_memory(tmp_path)
