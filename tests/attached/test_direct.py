"""Kernels launched by CuPy: the order of pointers, dimensions, attributes; times; occupancy. CuPy itself is made up
(``fake_cupy.py``), the kernels are real: their host side runs on the pointers that they are launched on.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.backend.compile import PtxKernel, compile_host
from jax_stitch.backend.launch import call, direct
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.devices import attached
from jax_stitch.devices.attached import provided
from jax_stitch.devices.in_use import build, driver_query, driver_version
from jax_stitch.emit.source import KernelSource
from jax_stitch.jit.tune import preselected, resident
from jax_stitch.jit.tune.units import units_of
from jax_stitch.latency import measure, timing
from jax_stitch.util.values import replace
from tests.attached.fake_cupy import Fake
from tests.fusion import forced

H200 = devices.get("h200")


def ptx(source: KernelSource, **changes: Any) -> PtxKernel:
    """What stands for the kernel's code on the device."""
    made = PtxKernel(source.name, "id", "sm_90", f"PTX of {source.name}", b"", 32, 0, 0, 0)
    return replace(made, **changes)


def on_host(source: KernelSource) -> Callable[[Sequence[int]], None]:
    """The kernel's host side, on pointers; the word for barriers is not for it."""
    kernel = compile_host(source)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel.address)
    buffers = len(source.inputs) + len(source.outputs) + len(source.scratch)

    def launch(pointers: Sequence[int]) -> None:
        assert len(pointers) == buffers + bool(source.phases)
        if source.phases:
            assert ctypes.c_uint64.from_address(pointers[-1]).value
        first = 0
        for blocks in source.host_phases:
            run((ctypes.c_void_p * (buffers + 1))(*pointers[:buffers]), first, first + blocks)
            first += blocks
        assert kernel.library is not None

    return launch


def standardised(x: jax.Array) -> Any:
    return (x - x.mean()) / x.std(), x.sum(0)


def halves(x: jax.Array) -> Any:
    """Types that DLPack has not everywhere."""
    y = jax.nn.softmax(x.astype(jnp.float32), -1)
    return y.astype(jnp.bfloat16), y > 0.001


CASES = {
    "phases": (standardised, jax.random.normal(jax.random.key(0), (300, 130))),
    "short types": (halves, jax.random.normal(jax.random.key(1), (40, 130), jnp.bfloat16)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_the_same_kernel_under_xla(fake: Fake, name: str) -> None:
    """An output in another's place, a missing buffer for what the kernel uses besides, a value read as another type."""
    function, argument = CASES[name]
    made = forced.stitched(forced.hlo_of(function, argument), H200, 0)
    for kernel in made.kernels:
        source = kernel.source
        inputs = [_some(t) for t in source.inputs]
        fake.kernels[source.name] = on_host(source)
        got = direct.Direct.of(ptx(source), source)(*inputs)
        want = jax.jit(lambda *xs, s=source: call(compile_host(s), s, *xs))(*inputs)
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype and g.shape == w.shape
            np.testing.assert_array_equal(np.asarray(g).view(np.uint8), np.asarray(w).view(np.uint8))


def _some(tensor: Any) -> jax.Array:
    dtype = numpy_dtype(tensor)
    values = np.random.default_rng(0).uniform(0.5, 1.5, tensor.dims)
    return jnp.asarray(values > 1 if dtype == np.bool_ else values.astype(dtype))


def test_a_launch_has_what_the_kernel_needs(fake: Fake) -> None:
    tensor = forced.stitched(forced.hlo_of(standardised, jnp.ones((300, 130))), H200, 0).kernels[0].source.inputs[0]
    source = KernelSource("k", "ST_GRID_BARRIER", (tensor,), (tensor,), 7, 96, 100_000, (tensor,), (7, 1), 16)
    fake.kernels["k"] = lambda pointers: None
    launched = direct.Direct.of(ptx(source), source)
    launched(_some(tensor))
    assert fake.told[:3] == [("load", b"PTX of k"), ("attribute", 8, 100_000), ("attribute", 14, 1)]
    assert ("launch", "k", (7, 1, 1), (96, 1, 1), 4, 100_000, True) in fake.told, "cooperative, since its blocks wait"
    assert launched.function.blocks_per_multiprocessor() == 2 and fake.told[-1] == ("occupancy", 96, 100_000)
    plain = replace(source, text="ST_LAST_BLOCK_ALONE", shared_bytes=0, cluster=1)
    fake.told.clear()
    direct.Direct.of(ptx(plain), plain)(_some(tensor))
    assert fake.told[:2] == [("load", b"PTX of k"), ("launch", "k", (7, 1, 1), (96, 1, 1), 4, 0, False)]


def test_each_launch_is_timed_alone_with_a_cold_cache(fake: Fake) -> None:
    told = fake.told
    found = attached.elapsed(lambda: told.append("launch"), 0.0)
    assert len(found) == 8 and found == pytest.approx([1e-6] * 8)
    assert told[0] == "launch", "the first is not counted"
    assert told[1:6] == [("memset", 0, 2 << 20), "record", "launch", "record", "wait"]
    told.clear()
    attached.elapsed(lambda: told.append("launch"), 0.0, cold=False)
    assert told[1:4] == ["record", "launch", "record"]
    assert attached.copy_bandwidth(1 << 20, 0.0) == pytest.approx((2 << 20) / 1e-6)


def test_a_gpu_outside_the_table_is_built_from_what_cupy_says(fake: Fake) -> None:
    fake.attributes |= {1: 1024, 8: 49152, 10: 32, 13: 1_410_000, 16: 84, 36: 8_001_000, 37: 384, 38: 6 << 20}
    fake.attributes |= {39: 1536, 75: 8, 76: 6, 81: 102400, 82: 65536, 97: 101376}
    device = build("NVIDIA RTX A6000", driver_query(0))
    assert (device.sm, device.l2_bytes, device.memory_bytes) == ("sm_86", 6 << 20, 80 << 30)


def test_the_drivers_version(fake: Fake, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Linux, else from CuPy, else the oldest: too new a version is what a driver would refuse kernels for."""
    told = tmp_path / "version"
    for branch, version in (("580.159.04", (13, 0)), ("535.54", (12, 2)), ("527.1", (12, 0)), ("999.1", (13, 0))):
        told.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {branch}  Release\nGCC version: 12.3.0\n")
        assert driver_version(told) == version
    assert driver_version(tmp_path / "nowhere") == (13, 1)
    monkeypatch.setitem(sys.modules, "cupy", None)
    provided.cupy.cache_clear()
    assert driver_version(tmp_path / "nowhere") == (12, 0)


def test_without_cupy_it_is_said_what_to_install(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    provided.cupy.cache_clear()
    assert not attached.is_usable()
    with pytest.raises(attached.CupyMissing, match="pip install cupy-cuda13x"):
        driver_query(0)(16)


@pytest.fixture
def on_a_gpu(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setattr(direct, "is_possible", lambda: True)
    return fake


def test_the_driver_has_the_last_word_on_blocks_that_wait(on_a_gpu: Fake) -> None:
    """It counts fewer than the published rules: launched, they would wait for blocks that have no place."""
    device = replace(forced.device("h200"), attached=True)
    columns = jax.ShapeDtypeStruct((4000, 700), jnp.float32)
    made = forced.stitched(
        forced.hlo_of(lambda x: (x - x.mean(1, keepdims=True), x.sum(0), (x * x).sum(0)), columns), device
    )
    kernels = tuple(ptx(source) for source in made.sources)
    on_a_gpu.occupancy = 32
    assert resident.all_resident(made, kernels)[0] is made
    on_a_gpu.occupancy = 0
    left, _ = resident.all_resident(made, kernels)
    assert any("0 run together" in note for note in left.plan.notes)
    on_a_gpu.told.clear()
    resident.all_resident(made, tuple(ptx(source, registers=8) for source in made.sources))
    assert any(told[0] == "occupancy" for told in on_a_gpu.told)


def test_trouble_of_cupys_own_is_no_trouble(on_a_gpu: Fake) -> None:
    """Programs run without it: the published rules count blocks, and programs time candidates."""
    device = replace(forced.device("h200"), attached=True)
    made = forced.stitched(forced.hlo_of(standardised, jnp.ones((300, 130))), device, 0)
    on_a_gpu.cuda.Module = None
    kernels = tuple(ptx(source) for source in made.sources)
    assert resident.all_resident(made, kernels)[0] is made
    found = [preselected.Contender(f"c{k}", made.kernels) for k in range(6)]
    compiled = {c.key: {id(s): k for s, k in zip(made.sources, kernels, strict=True)} for c in found}
    assert preselected.fastest(found, compiled, device) == found


def test_a_described_gpu_is_not_asked(on_a_gpu: Fake) -> None:
    made = forced.stitched(forced.hlo_of(standardised, jnp.ones((300, 130))), H200, 0)
    resident.all_resident(made, tuple(ptx(source) for source in made.sources))
    assert not on_a_gpu.told


def test_the_bandwidth_curve_is_timed_by_the_gpus_clock(on_a_gpu: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def timed(program: Any, device: Any, step: Any, seconds: float, clock: Any) -> list[Any]:
        asked.append(clock)
        return [measure._Timed(program, 2e-6 + len(asked) * 1e-6)]

    monkeypatch.setattr(measure, "_timed", timed)
    curve, alone = measure._curve(H200, lambda _: None, 0.0)
    assert set(asked) == {timing.event_seconds} and alone == curve[0][1] == pytest.approx(3e-6)
    asked.clear()
    _, alone = measure._curve(devices.get("cpu"), lambda _: None, 0.0)
    assert set(asked) == {timing.kernel_seconds} and alone is None


def test_autotune_makes_programs_of_the_fastest_kernels_alone(on_a_gpu: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    made = forced.stitched(forced.hlo_of(standardised, jnp.ones((300, 130))), H200, 0)
    (unit, *_) = units_of(made.plan.graph, made.kernels)
    found = [preselected.Contender(f"c{k}", unit.kernels) for k in range(6)]
    monkeypatch.setattr(preselected.Contender, "key", property(lambda c: c.name))
    times = {"c0": 9.0, "c1": 3.0, "c2": 1.0, "c3": 8.0, "c4": 2.0, "c5": 7.0}
    monkeypatch.setattr(preselected, "_seconds", lambda candidate, kernels, device: times[candidate.name])
    compiled: dict[str, Any] = {c.key: {} for c in found}
    assert [c.name for c in preselected.fastest(found, compiled, H200)] == ["c0", "c2", "c4", "c1"]
    assert preselected.fastest(found[:4], compiled, H200) == found[:4], "few are all tried"
    assert preselected.fastest(found, compiled, devices.get("cpu")) == found


def test_the_time_of_a_candidate_is_that_of_all_its_kernels(on_a_gpu: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    made = forced.stitched(forced.hlo_of(standardised, jnp.ones((300, 130))), H200, 0)
    monkeypatch.setattr(preselected, "argument_sets", lambda types, *_, **__: [[jnp.ones(t.shape) for t in types]])
    for kernel in made.kernels:
        on_a_gpu.kernels[kernel.source.name] = lambda pointers: None
    kernels = {id(k.source): ptx(k.source) for k in made.kernels}
    candidate = preselected.Contender("all", made.kernels)
    assert preselected._seconds(candidate, kernels, H200) == pytest.approx(len(made.kernels) * 1e-6)
    assert on_a_gpu.told[-1] == "freed", "memory that CuPy would keep from JAX"
