"""The device table against XLA itself, and how devices are found."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from jax_stitch import devices
from jax_stitch.devices.in_use import build, lookup, with_driver
from jax_stitch.devices.table import entries

GPUS = [name for name in devices.names() if devices.get(name).kind == "cuda"]


def test_the_table_holds_what_is_promised() -> None:
    assert set(devices.names()) >= {"cpu", "t4", "a100", "l4", "rtx4090", "h100", "h200", "b200"}


@pytest.mark.parametrize("name", GPUS)
def test_figures_are_consistent(name: str) -> None:
    device = devices.get(name)
    assert device.name == name and device.kind == "cuda" and not device.attached
    assert device.shared_per_block <= device.shared_per_block_optin <= device.shared_per_multiprocessor
    assert device.threads_per_multiprocessor % device.warp_size == 0
    assert 1e11 < device.memory_bandwidth < 1e13
    assert 1e9 < device.memory_bytes < 1e12
    assert 1 < device.clock_ghz < 3
    assert device.kernel_parameter_bytes == 32764


def test_compute_capability_survives_the_text_protos_missing_zero() -> None:
    assert [devices.get(n).sm for n in ("t4", "a100", "l4", "h200", "b200")] == [
        "sm_75",
        "sm_80",
        "sm_89",
        "sm_90",
        "sm_100",
    ]


def test_unknown_device_names_the_nearest_and_the_known() -> None:
    with pytest.raises(devices.UnknownDeviceError, match=r"mean 'h200'.*b200") as error:
        devices.get("h20")
    assert isinstance(error.value, ValueError)
    with pytest.raises(devices.UnknownDeviceError) as error:
        devices.get("gpu-of-tomorrow")
    assert "Did you mean" not in str(error.value)


def test_names_in_any_case() -> None:
    assert devices.get("H200") == devices.get("h200")


def test_default_is_the_cpu_where_jax_has_no_gpu() -> None:
    code = "from jax_stitch import devices; d = devices.get(); print(d.name, d.attached, devices.get('h200').attached)"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["cpu", "True", "False"]


@pytest.mark.parametrize("name", GPUS)
def test_an_attached_gpu_is_recognised(name: str) -> None:
    product = {
        "t4": "Tesla T4",
        "a100": "NVIDIA A100-SXM4-40GB",
        "a100-80gb": "NVIDIA A100-SXM4-80GB",
        "l4": "NVIDIA L4",
        "rtx4090": "NVIDIA GeForce RTX 4090",
        "l40s": "NVIDIA L40S",
        "h100": "NVIDIA H100 80GB HBM3",
        "h200": "NVIDIA H200",
        "b200": "NVIDIA B200",
    }[name]
    known = devices.get(name)
    assert known.compute_capability is not None
    found = lookup(product, known.compute_capability, known.multiprocessors, entries())
    assert found == dataclasses.replace(known, attached=True)


@pytest.mark.parametrize(
    ("product", "capability", "multiprocessors"),
    [
        ("NVIDIA H200 MIG 1g.18gb", (9, 0), 16),  # a slice of the chip is not the chip
        ("NVIDIA L40", (8, 9), 58),  # L4 is not a word of L40
        ("NVIDIA L40", (8, 9), 142),  # and L40 is no L40S
        ("NVIDIA H200", (10, 0), 132),
    ],
)
def test_a_similar_gpu_is_not_taken_for_one_of_the_table(
    product: str, capability: tuple[int, int], multiprocessors: int
) -> None:
    assert lookup(product, capability, multiprocessors, entries()) is None


def test_a_gpu_outside_the_table_is_built_from_its_driver() -> None:
    attributes = {
        1: 1024, 8: 49152, 10: 32, 13: 1_410_000, 16: 84, 36: 8_001_000, 37: 384, 38: 6 << 20, 39: 1536,
        75: 8, 76: 6, 81: 102400, 82: 65536, 97: 101376, -1: 48 << 30,
    }  # fmt: skip
    device = build("NVIDIA RTX A6000", attributes.__getitem__)
    assert (device.name, device.sm, device.attached, device.target_config) == ("rtx-a6000", "sm_86", True, None)
    assert device.memory_bandwidth == pytest.approx(768e9, rel=1e-3)
    assert device.clock_ghz == pytest.approx(1.41)


@pytest.mark.parametrize(("driver", "most"), [((12, 0), 4096), ((12, 1), 32764), ((13, 0), 32764)])
def test_old_drivers_take_small_parameters(driver: tuple[int, int], most: int) -> None:
    """ptxas refuses 545 pointers below PTX 8.1, which drivers of CUDA 12.0 do not know."""
    assert with_driver(devices.get("h200"), driver).kernel_parameter_bytes == most
    assert (
        with_driver(dataclasses.replace(devices.get("t4"), kernel_parameter_bytes=64), driver).kernel_parameter_bytes
        == 64
    )
