"""On an attached GPU: kernels by XLA's call, by our handler and by CuPy give the same bits; what CuPy has is there."""

from __future__ import annotations

import operator

import jax
import pytest

from bench.gpu.compositions import COMPOSITIONS
from bench.gpu.launchers import answer
from jax_stitch import devices
from jax_stitch.backend.launch import direct
from jax_stitch.devices import attached
from jax_stitch.jit.tune import canary
from jax_stitch.util.options.launchers import Launcher

pytestmark = pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")


@pytest.mark.parametrize("launcher", Launcher)
def test_the_canary_lives(launcher: Launcher) -> None:
    assert canary.fault(devices.get(), launcher) == ""


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_the_same_bits_by_all_ways(name: str) -> None:
    found = answer({"name": name}, lambda stage: None)
    assert found["verdict"] == "well", found["told"]
    assert "no " not in found["told"], "all three ways were there"


@pytest.mark.parametrize(
    "name",
    [
        *("cuda.Module.load", "cuda.Module.get_function", "cuda.Event.record", "cuda.get_elapsed_time", "from_dlpack"),
        *("cuda.driver.funcSetAttribute", "cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor"),
        *("cuda.runtime.deviceGetAttribute", "cuda.runtime.getDeviceProperties", "cuda.runtime.driverGetVersion"),
        *("cuda.MemoryPointer.memset_async", "cuda.MemoryPointer.copy_from_device_async", "cuda.get_current_stream"),
    ],
)
def test_cupy_has_what_is_asked_of_it(name: str) -> None:
    assert callable(operator.attrgetter(name)(attached.cupy()))


def test_properties_are_those_of_the_table() -> None:
    """Where the GPU is in the table: the driver counts the same multiprocessors and shared memory."""
    assert direct.is_possible()
    device = devices.get()
    found = [attached.attribute(number) for number in (16, 39, 81, 82, 97)]
    assert found == [
        device.multiprocessors,
        device.threads_per_multiprocessor,
        device.shared_per_multiprocessor,
        device.registers_per_multiprocessor,
        device.shared_per_block_optin,
    ]
    assert attached.copy_bandwidth(1 << 28) > 0.5 * device.memory_bandwidth
