"""Counted instructions against what can be counted by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.devices import Device
from jax_stitch.latency.classes import CLASSES, Work
from jax_stitch.latency.model import counted as counted_of
from tests.fusion import forced

CPU = forced.device("cpu", multiprocessors=2, warp_size=16, fp32_lanes=16)
H200 = forced.device("h200")
BOTH = pytest.mark.parametrize("device", [CPU, H200], ids=["cpu", "h200"])


def counted(fun: Any, *shapes: Any, device: Device) -> Work:
    """The instructions of the only kernel of a function."""
    (kernel,) = forced.scheduled(forced.plan_of(forced.graph_of(fun, *shapes), device), device)
    (found,) = counted_of(kernel, device)
    return found.work


def of(*dims: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


@BOTH
def test_an_exponential_that_two_passes_need_is_counted_once(device: Device) -> None:
    """A softmax keeps what it exponentiates: recomputed, there would be twice as many."""
    found = counted(lambda x: jax.nn.softmax(x, 1), of(64, 1024), device=device)
    assert found["exponential"] == 64 * 1024
    assert found["store"] == 64 * 1024 and not found["gather"] and not found["scatter"]
    assert found["combine"] >= 2 * 64 * 1024  # the largest and the sum


@BOTH
def test_what_is_alike_along_a_row_is_computed_once_per_row(device: Device) -> None:
    found = counted(lambda x: x * jax.lax.rsqrt((x * x).sum(1, keepdims=True)), of(64, 1024), device=device)
    threads = 16 if device.kind == "cpu" else found["rsqrt"] / 64
    assert found["rsqrt"] == 64 * threads < 64 * 1024


@BOTH
def test_strided_reading_is_gathering(device: Device) -> None:
    found = counted(lambda x, y: jnp.tanh(x.T) * y, of(256, 512), of(512, 256), device=device)
    assert found["gather"] == 256 * 512 and found["load"] == 256 * 512


@BOTH
def test_wide_elements_count_twice(device: Device) -> None:
    with jax.enable_x64(True):
        narrow = counted(lambda x: jnp.sqrt(x) + x, of(64, 1024), device=device)
        wide = counted(lambda x: jnp.sqrt(x) + x, of(64, 1024, dtype=jnp.float64), device=device)
    for name in ("sqrt", "arithmetic", "load", "store"):
        assert wide[name] == 2 * narrow[name]


def test_half_precision_is_rounded_after_each_operation() -> None:
    found = counted(lambda x: x * x + x, of(64, 1024, dtype=jnp.bfloat16), device=CPU)
    assert found["round"] == 2 * 64 * 1024


def test_what_is_left_of_a_row_after_its_vectors_takes_longer() -> None:
    """25 places are a vector, half a one, and a last one by itself: three instructions, where 32 places take two."""
    assert counted(jnp.exp, of(512, 25), device=CPU)["exponential"] <= 512 * 25 * 1.001  # all of one run of memory
    summed = lambda x: jnp.exp(x).sum(1)  # noqa: E731
    assert counted(summed, of(64, 96), device=CPU)["exponential"] == 64 * 96
    assert counted(summed, of(64, 89), device=CPU)["exponential"] == 64 * 16 * 7


def test_accesses_under_a_condition_keep_a_cpu_from_vectors() -> None:
    def shifted(count: int) -> Any:
        def run(x: jax.Array) -> jax.Array:
            shifts = [jnp.pad(x, ((0, 0), (k, 0)))[:, :-k] for k in range(1, count + 1)]
            return sum(shifts, start=x.sum(1, keepdims=True))

        return run

    few, many = (counted(shifted(count), of(64, 256), device=CPU) for count in (1, 9))
    assert few["store"] == 64 * 256, "a pass that is cut where the condition changes has none left"
    assert many["store"] == 16 * 64 * 256


def test_rows_that_lie_between_each_other_are_neighbours() -> None:
    """The channels of a group: two places of a row, then those of the next."""

    def grouped(x: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt((x * x).sum((1, 3), keepdims=True))

    found = counted(grouped, of(4, 64, 32, 2), device=CPU)
    assert found["load"] and not found["gather"] and not found["scatter"]
    assert found["interleave"] == found["load"] + found["store"]


def test_a_loop_counts_its_steps() -> None:
    def run(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 50, lambda _, v: jnp.sin(v) + x, x)

    assert counted(run, of(4096), device=CPU)["sine"] == 50 * 4096


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 300), places=st.integers(1, 300), device=st.sampled_from([CPU, H200]))
def test_nothing_is_counted_less_often_than_there_are_elements(rows: int, places: int, device: Device) -> None:
    """At any size, and with classes that are known: idle lanes only ever add."""
    found = counted(lambda x: jnp.tanh(x) * x.sum(1, keepdims=True), of(rows, places), device=device)
    assert set(found) <= set(CLASSES)
    assert found["tanh"] >= rows * places and found["combine"] >= rows * places
    assert found["store"] + found["scatter"] >= rows * places / (device.warp_size if rows * places == 1 else 1)
