"""The second launcher (``backend/launch/gpu_handler.cc``), with XLA's own call frames and a driver that writes down
what it is asked for: the order of pointers, sizes, attributes, what is loaded when, and what is said where something
fails.

A child process has the made-up driver: nothing else in this one may take it for CUDA's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.backend.compile import compile_ptx, toolchain
from jax_stitch.backend.compile.build_folder import build_folder
from jax_stitch.backend.launch import call, choice, gpu
from jax_stitch.util.options.launchers import LAUNCHER_VARIABLE, Launcher
from jax_stitch.util.suggestion import WrongOption
from tests.launch.test_ptx import described, two_sums

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
__all__ = ["described"]
pytestmark = pytest.mark.xdist_group("gpu_handler")  # They share a child.


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the child tells."""
    driver = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    text = (HERE / "fake_driver.cc").read_text()
    driver.write_bytes(toolchain.shared_object("driver", text, ("-std=c++17", "-Wl,-soname,libcuda.so.1")))
    command = [sys.executable, "-m", "tests.launch.gpu_handler_child", str(driver)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_parameters_are_the_operands_then_the_results(found: dict[str, Any]) -> None:
    """Also more than fit the handler's own stack."""
    assert found["right"] and found["many"]


def test_a_launch_has_its_dimensions_its_shared_memory_and_xlas_stream(found: dict[str, Any]) -> None:
    one = found["one"]
    assert (one["grid"], one["block"], one["shared"], one["stream"]) == ([5, 1, 1], [96, 1, 1], 100_000, 0x5E01)
    assert one["count"] == 0, "an ordinary launch"
    assert "attribute 8 100000" in found["one said"], "more than 48 KB has to be asked for"


def test_kernels_whose_blocks_wait_are_launched_cooperatively(found: dict[str, Any]) -> None:
    """The driver then starts all blocks, or none: nobody waits for a block that has no place. No other kernel is."""
    assert found["waiting"]["cooperative"] == [1] and found["waiting"]["count"] == 1
    assert found["last"]["count"] == 0


def test_clusters(found: dict[str, Any]) -> None:
    """A size that the code says itself must not be said again; more than 8 blocks have to be asked for."""
    assert found["clusters"]["cluster"] == [[16, 1, 1]] and "attribute 14 1" in found["clusters said"]
    assert found["clustered"]["cluster"] == []


def test_command_buffers_may_hold_its_calls(found: dict[str, Any]) -> None:
    assert found["traits"] == [1, 1, 1]


def test_a_kernel_is_loaded_once_for_each_device_and_unloaded_with_its_last_executable(found: dict[str, Any]) -> None:
    loads = [[line for line in found[key] if line.startswith("load")] for key in ("same said", "another device said")]
    assert [len(lines) for lines in loads] == [1, 1] and found["same kernel twice"] == 3.0
    said = found["another device said"]
    assert said[0] == "push 2" and said.count("push 2") == said.count("pop 0"), "its context, and back"
    assert [line for line in found["gone said"] if line.startswith("unload")] == ["unload 0 CUBIN"] * 2


def test_threads_load_a_kernel_once(found: dict[str, Any]) -> None:
    assert found["threads"] and found["threads loads"] == 1


def test_ptx_where_the_driver_does_not_take_the_machine_code(found: dict[str, Any]) -> None:
    (loaded,) = (line for line in found["refused cubin said"] if line.startswith("load"))
    assert loaded.endswith("ptx")


def test_errors_name_the_kernel_and_what_the_driver_said(found: dict[str, Any]) -> None:
    assert "'k' cannot be loaded: CUDA_ERROR_INVALID_PTX: line 1: wrong" in found["wrong ptx"]
    assert "'k' cannot be launched: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" in found["too large"]
    assert "lacks an attribute" in found["lacking"]


@pytest.fixture
def by_ffi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER_VARIABLE, "ffi")


def test_xla_compiles_its_calls_for_a_gpu(described: Any, by_ffi: None) -> None:
    """A canary for each version of jaxlib: XLA's GPU compiler takes the call, by a handler that is registered."""
    choice.ready()
    source = two_sums(shared=1000)
    kernel = compile_ptx(source, "sm_90")
    arguments = [jax.ShapeDtypeStruct((4, 256), np.float32, sharding=described)] * 2
    text = jax.jit(lambda a, b: call(kernel, source, a, b)).lower(*arguments).compile().as_text()
    (line,) = (line for line in text.splitlines() if f'custom_call_target="{gpu.TARGET}"' in line)
    assert "API_VERSION_TYPED_FFI" in line and "shared = 1000 : i64" in line and "__gpu$xla.gpu.ptx" not in text


def test_plans_for_described_gpus_do_not_need_it(described: Any, by_ffi: None) -> None:
    """The process that compiles for these has no handler of ours: XLA found none for the call."""
    plan = stitch_jit(lambda x: (x - x.mean()) / x.std()).plan(np.ones((512, 513), np.float32), device="h200")
    assert plan.stitched_hlo.count("__gpu$xla.gpu.ptx") == plan.launches


def test_the_users_choice_is_heard(by_ffi: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choice.in_use() is Launcher.FFI and choice.is_settled()
    assert choice.inherited() == {LAUNCHER_VARIABLE: "ffi"}
    monkeypatch.delenv(LAUNCHER_VARIABLE)
    assert choice.in_use() is Launcher.PTX and not choice.is_settled() and not choice.inherited()
    monkeypatch.setenv(LAUNCHER_VARIABLE, "fif")
    with pytest.raises(WrongOption, match="LAUNCHER is 'fif', which is none of 'ptx', 'ffi'; did you mean 'ffi'"):
        choice.in_use()


def test_the_types_are_those_of_cudas_header() -> None:
    """Where there is one: the package for plans brings it."""
    folders = [Path("/usr/local/cuda/include"), *Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/include")]
    headers = [folder for folder in folders if (folder / "cuda.h").exists()]
    if not headers:
        pytest.skip("no cuda.h")
    with build_folder() as folder:
        (folder / "driver.cc").write_text((HERE / "driver_types.cc").read_text())
        include = [f"-I{headers[0]}", f"-I{gpu.SOURCE.parent}"]
        command = [*toolchain.compiler(), "-std=c++17", "-fsyntax-only", *include, str(folder / "driver.cc")]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
