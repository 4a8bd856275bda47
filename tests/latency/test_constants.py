"""Constants of devices: complete, kept, and found by measuring a machine that is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_stitch import devices
from jax_stitch.__main__ import main
from jax_stitch.devices import Device
from jax_stitch.latency import Constants, constants_of, latency
from jax_stitch.latency import constants as stored
from jax_stitch.latency import measure as measuring
from jax_stitch.latency.classes import CLASSES
from jax_stitch.latency.synthetic import Program
from jax_stitch.util.values import replace

CPU = replace(devices.get("cpu"), description="a CPU of the tests", multiprocessors=1, clock_ghz=2.0, l2_bytes=32 << 20)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    yield


@pytest.mark.parametrize("name", [n for n in devices.names() if devices.get(n).kind == "cuda"])
def test_data_files_have_every_class_and_their_source(name: str) -> None:
    found = constants_of(devices.get(name))
    assert set(found.issue) >= set(CLASSES) and set(found.wait) >= set(CLASSES)
    assert found.source and found.launch > 0


def test_those_of_cpus_too() -> None:
    found = constants_of(CPU)
    assert set(found.issue) >= set(CLASSES) and not found.wait
    assert found.bandwidth(1 << 40) == CPU.memory_bandwidth > 0


@given(volume=st.integers(1, 1 << 40))
def test_the_bandwidth_curve_goes_through_its_points(volume: int) -> None:
    found = replace(constants_of(CPU), curve=((1 << 15, 4e11), (1 << 20, 1e11), (1 << 27, 1e10)))
    assert [found.bandwidth(size) for size, _ in found.curve] == pytest.approx([rate for _, rate in found.curve])
    assert 1e10 <= found.bandwidth(volume) <= 4e11
    assert found.bandwidth(volume + 1) <= found.bandwidth(volume) * 1.000001


def test_what_was_measured_is_used_from_then_on_and_for_that_device_alone() -> None:
    assumed = constants_of(CPU)
    measured = replace(
        assumed, source="measured", launch=1.25e-6, issue=MappingProxyType({**assumed.issue, "sine": 3.0})
    )
    stored.keep(CPU, measured)
    assert constants_of(CPU) == measured
    assert constants_of(replace(CPU, multiprocessors=2)).source == assumed.source
    assert constants_of(replace(CPU, description="another CPU")).source == assumed.source
    assert constants_of(replace(CPU, attached=False)).source == assumed.source


def test_what_is_not_attached_is_not_measured() -> None:
    with pytest.raises(measuring.NotAttachedError, match="h200 is not attached"):
        measuring.measure(devices.get("h200"))


def test_measuring_finds_a_machine_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a fit that does not find the constants that times come of: every program is predicted as it was timed."""
    assumed = constants_of(CPU)
    slower = {
        name: cycles * (3.0 if name in ("exponential", "gather") else 1.5) for name, cycles in assumed.issue.items()
    }
    true = replace(assumed, issue=MappingProxyType(slower), launch=2e-6, buffer=1e-7, overlap=0.4, start=0.0)
    seen: list[measuring._Timed] = []

    def timed(program: Program, device: Device, step: object, seconds: float, *_: object) -> list[measuring._Timed]:
        kernels = program.kernels(device)
        if len(kernels) != 1:  # As when it measures: which program becomes several is up to the machine's bandwidth.
            return []
        seen.append(measuring._Timed(kernels[0], latency(kernels[0], device, known=true).seconds))
        return seen[-1:]

    monkeypatch.setattr(measuring, "_timed", timed)
    nothing = dict.fromkeys(assumed.issue, 0.0)
    stored.keep(CPU, replace(assumed, issue=MappingProxyType(nothing)))  # What was measured before is no guide.
    found: Constants = measuring.measure(CPU)
    assert found.launch == pytest.approx(true.launch, rel=0.2) and found.buffer == pytest.approx(true.buffer, rel=0.2)
    ratios = [latency(t.kernel, CPU, known=found).seconds / t.seconds for t in seen]
    assert math.exp(sum(abs(math.log(r)) for r in ratios) / len(ratios)) < 1.1
    assert found.issue["exponential"] == pytest.approx(true.issue["exponential"], rel=0.1)
    assert found.issue["gather"] == pytest.approx(true.issue["gather"], rel=0.2)
    assert "a CPU of the tests" in found.source


def test_the_command_says_what_it_cannot_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--device", "a100"]) == 2
    assert "a100 is not attached" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_measures_this_machine_and_keeps_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--json"]) == 0
    found = stored.from_json(capsys.readouterr().out.encode())
    assert constants_of(devices.get("cpu")) == found
    assert found.issue["sine"] > found.issue["sqrt"] > found.issue["arithmetic"] > 0
    assert found.bandwidth(1 << 16) > found.bandwidth(1 << 27) > 0
