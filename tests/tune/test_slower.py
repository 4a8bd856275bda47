"""Kernels that are predicted slower than XLA's stay with XLA."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.frontend.capture import capture
from jax_stitch.jit.tune.slower import NEAR_SECONDS, _by_xla, _together, without_slower
from jax_stitch.latency import latency
from jax_stitch.pipeline import stitch_capture


def sampled(logits: Any, key: Any) -> Any:
    """Of few long rows, with random numbers that every pass over a row would make once more."""
    noise = jax.random.gumbel(jax.random.wrap_key_data(key), logits.shape)
    return jnp.argmax(jax.nn.log_softmax(logits) + noise, -1), jax.nn.softmax(logits + noise, -1).max(-1)


def sorted_noise(scales: Any, key: Any) -> Any:
    """Of two rows, each of which one block puts in order."""
    return jnp.sort(scales * jax.random.gumbel(jax.random.wrap_key_data(key), scales.shape), -1)


KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)


def test_a_few_rows_of_much_work_are_left_to_xla() -> None:
    device = devices.get("h200")
    args = jax.ShapeDtypeStruct((2, 4096), jnp.float32), KEY
    stitched = stitch_capture(capture(sorted_noise, args, device), device)
    rest = without_slower(stitched)
    assert len(rest.kernels) < len(stitched.kernels)
    assert any("slower by prediction" in b.reason for b in rest.plan.boundaries) and "left to it" in rest.plan.notes[-1]
    assert "slower by prediction" in str(stitch_jit(sorted_noise).plan(*args, device="h200"))


def test_a_few_long_rows_have_several_blocks_each() -> None:
    """An argmax of which XLA makes two steps was one of 128 lanes of a row, with elements that lie 250 apart."""
    device = devices.get("h200")
    args = jax.ShapeDtypeStruct((4, 32000), jnp.float32), KEY
    stitched = without_slower(stitch_capture(capture(sampled, args, device), device))
    (kernel,) = stitched.kernels
    assert kernel.scheduled.cluster == 8 and kernel.scheduled.blocks == 32
    assert latency(kernel.scheduled, device).seconds < 2e-5


def test_what_follows_statistics_of_columns_is_spread_over_the_device() -> None:
    """BatchNorm: the last step of the variance took the whole normalisation with it, on eight blocks."""

    def normalised(x: Any) -> Any:
        centred = x - x.mean(0)
        return centred * jax.lax.rsqrt((centred * centred).mean(0) + 1e-5)

    device = devices.get("h200")
    x = jax.ShapeDtypeStruct((32 * 56 * 56, 64), jnp.float32)
    (kernel,) = stitch_capture(capture(normalised, (x,), device), device).kernels
    graph = kernel.scheduled.graph
    last = kernel.scheduled.parts[-1]
    assert last.split.blocks > 4 * device.multiprocessors
    steps = [i for p in kernel.scheduled.parts for i in p.pattern.nodes if graph[i].op == PARTIAL]
    assert len(steps) == 2


def hue(x: Any) -> Any:
    """Return hue, saturation and value. The three results of a point are neighbours in memory, as its colours are."""
    most, least = x.max(-1), x.min(-1)
    red, green, blue = (x[..., k] for k in range(3))
    d = most - least + 1e-6
    h = jnp.where(
        most == red, (green - blue) / d, jnp.where(most == green, (blue - red) / d + 2, (red - green) / d + 4)
    )
    return jnp.stack([h / 6, d / (most + 1e-6), most], -1)


def looked_up(table: Any, at: Any) -> Any:
    return jnp.tanh(table[at]).sum(-1) + jnp.exp(table[at + 1]).sum(-1)


def test_what_a_cpu_joins_element_by_element_is_left_to_xla() -> None:
    """0.78 of the speed of ``jax.jit``: bytes and operations do not say that three neighbours are three stores."""
    device = devices.get("haswell")
    stitched = stitch_capture(capture(hue, (jax.ShapeDtypeStruct((4, 64, 64, 3), jnp.float32),), device), device)
    assert stitched.kernels and not without_slower(stitched).kernels


def test_elements_at_places_that_are_data_may_be_far_apart() -> None:
    """Noise on a grid was 4.4 times as fast as under ``jax.jit``, and predicted as half as fast."""
    device = devices.get("zen4")
    stitched = stitch_capture(capture(looked_up, LOOKED_UP, device), device)
    assert stitched.kernels and len(without_slower(stitched).kernels) == len(stitched.kernels)


def with_column_means(x: Any) -> Any:
    return jax.nn.softmax(x, 1), x.mean(0)


LOOKED_UP = jax.ShapeDtypeStruct((1000, 8), jnp.float32), jax.ShapeDtypeStruct((4000,), jnp.int32)


@pytest.mark.parametrize(
    ("function", "arguments", "op"),
    [
        pytest.param(looked_up, LOOKED_UP, "gather", id="at data"),
        pytest.param(with_column_means, (jax.ShapeDtypeStruct((4096, 512), jnp.float32),), PARTIAL, id="in two steps"),
    ],
)
def test_what_xla_takes_is_estimated(function: Any, arguments: Any, op: str) -> None:
    """Catches kernels that are never compared, whatever is predicted: two programs had 0.84 of the speed of
    ``jax.jit``.
    """
    device = devices.get("zen4")
    stitched = stitch_capture(capture(function, arguments, device), device)
    compared = [
        together
        for together in _together(stitched)
        if any(k.scheduled.graph[i].op == op for k in together for p in k.scheduled.parts for i in p.pattern.inside)
    ]
    assert compared
    for together in compared:
        found = _by_xla(together, [latency(k.scheduled, device) for k in together], {}, device)
        assert found is not None and found > 4000 * 8 * NEAR_SECONDS * (op == "gather")
