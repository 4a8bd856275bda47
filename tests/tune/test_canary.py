"""Which launcher is used: the small kernel that is tried, what is made of its failure, and what is kept."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.backend.launch import call, choice
from jax_stitch.checking import check
from jax_stitch.jit import library
from jax_stitch.jit.rebuilt import find
from jax_stitch.jit.tune import canary
from jax_stitch.util.options.launchers import LAUNCHER_VARIABLE, Launcher
from jax_stitch.util.suggestion import WrongOption
from tests.launch.test_ptx import described

__all__ = ["described"]
H200 = devices.get("h200")


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(LAUNCHER_VARIABLE, raising=False)
    monkeypatch.setattr(library, "station_of", lambda device: library.Station("here", device.name, "a driver"))
    choice.settle(None)
    yield
    choice.settle(None)


def faults(monkeypatch: pytest.MonkeyPatch, **found: str) -> list[Launcher]:
    """The canary under each launcher, as told; returns the launchers that were tried."""
    tried: list[Launcher] = []

    def fault(device: Any, launcher: Launcher) -> str:
        tried.append(launcher)
        return found.get(launcher.value, "")

    monkeypatch.setattr(canary, "fault", fault)
    return tried


def test_xlas_call_is_tried_first_and_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    tried = faults(monkeypatch)
    canary.choose(H200)
    assert choice.in_use() is Launcher.PTX and choice.is_settled() and not caplog.records
    choice.settle(None)  # another process
    canary.choose(H200)
    assert tried == [Launcher.PTX] and choice.in_use() is Launcher.PTX


def test_our_handler_where_xlas_call_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    tried = faults(monkeypatch, ptx="No registered implementation for custom call")
    with caplog.at_level(logging.WARNING):
        canary.choose(H200)
    assert tried == [Launcher.PTX, Launcher.FFI] and choice.in_use() is Launcher.FFI
    assert "No registered implementation" in caplog.text
    choice.settle(None)
    canary.choose(H200)
    assert len(tried) == 2 and choice.in_use() is Launcher.FFI
    assert choice.inherited() == {LAUNCHER_VARIABLE: "ffi"}, "programs made in child processes"


def test_where_none_works_it_is_said_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An out-of-memory of the moment must not be kept."""
    faults(monkeypatch, ptx="no such call", ffi="no C++ compiler")
    with pytest.raises(canary.NoLauncher, match="ptx: no such call; ffi: no C\\+\\+ compiler"):
        canary.choose(H200)
    assert not choice.is_settled()
    tried = faults(monkeypatch)
    canary.choose(H200)
    assert tried == [Launcher.PTX]


def test_it_is_settled_before_the_first_program_for_an_attached_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """And for no other: a plan for a GPU that is not here, or a CPU, tries nothing."""
    tried = faults(monkeypatch)
    for device in (devices.get("cpu"), H200):
        find._settle_launcher(device)
    assert not tried
    for _ in range(2):
        find._settle_launcher(replace(H200, attached=True))
    assert tried == [Launcher.PTX]


def test_what_a_launch_raises_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first line."""

    def apart(device: Any) -> Any:
        raise RuntimeError("no such custom call\nand where that was")

    monkeypatch.setattr(canary, "apart", apart)
    assert canary.fault(H200, Launcher.PTX) == "no such custom call"


def test_the_small_kernel_is_right() -> None:
    """Thread by thread, with its last block."""
    values = np.arange(1000, dtype=np.float32)
    found = check(canary._source(), [values])
    assert not found.findings.faults, str(found.findings)
    each, ends = found.outputs
    assert (each == values + 1).all() and ends[0] == 1001


@pytest.mark.parametrize("launcher", Launcher)
def test_this_jaxlib_compiles_it_under_both(
    described: Any, monkeypatch: pytest.MonkeyPatch, launcher: Launcher
) -> None:
    """What can be tried without a GPU: XLA's compiler takes the calls."""
    source = canary._source()
    kernel = compile_ptx(source, "sm_90")
    given = jax.ShapeDtypeStruct((1000,), np.float32, sharding=described)
    with choice.using(launcher):
        text = jax.jit(lambda x: call(kernel, source, x)).lower(given).compile().as_text()
    target = {Launcher.PTX: "__gpu$xla.gpu.ptx", Launcher.FFI: "jax_stitch_gpu_kernel"}[launcher]
    assert text.count(f'custom_call_target="{target}"') == 1


def test_a_wrong_variable_is_said_where_a_function_is_decorated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER_VARIABLE, "cuda")
    with pytest.raises(WrongOption, match=r"\$JAX_STITCH_LAUNCHER is 'cuda', which is none of 'ptx', 'ffi'"):
        stitch_jit(lambda x: x)
