"""Streams as kernels of GPUs: what they compute, run on this machine as they are scheduled for an H200, by tensor cores
whose fragments the checking mode takes from thread to thread; and what is planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch, stitch_jit
from jax_stitch.backend.compile.ptx import compile_ptx
from jax_stitch.checking import check_function
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from jax_stitch.fusion.streams import choice
from jax_stitch.pipeline import stitch_capture
from tests.streams.programs import PROGRAMS, attention, causal, heads

SOME = (
    "full",
    "causal",
    "rows masked whole",
    "all masked",
    "soft cap",
    "bias",
    "log-sum-exp",
    "cross",
    "any lengths, with bias",
    "one key head",
    "heads first",
    "jax.nn, bf16",
    "jax.nn, grouped heads",
    "over queries",
)
TF32 = 2.0**-11
"""The rounding error of a factor that tensor cores take: ten bits of mantissa."""

pytestmark = pytest.mark.skipif(not cuda_plugin_installed(), reason="needs JAX's CUDA plugin, for XLA's GPU compiler")


@pytest.fixture
def always_worth() -> Iterator[None]:
    """Small programs too, in several tiles."""
    with mock.patch.multiple(choice, TILE=16, MARGIN=1e-6, AROUND=0, WIDE=0):
        yield


def exactly(function: Any, arguments: tuple[Any, ...]) -> list[np.ndarray]:
    with jax.enable_x64(True):
        wide = [np.asarray(a, np.float64) if np.asarray(a).dtype.kind not in "iub" else a for a in arguments]
        return [np.asarray(e, np.float64) for e in jax.tree.leaves(jax.jit(function)(*wide))]


def errors(found: Any, exact: list[np.ndarray]) -> float:
    """Return the largest error of results, relative to the largest value; where there is no number, neither has one."""
    worst = 0.0
    for a, e in zip(jax.tree.leaves(found), exact, strict=True):
        wide = np.asarray(a, np.float64)
        np.testing.assert_array_equal(np.isnan(wide), np.isnan(e))
        if np.isfinite(e).any():
            worst = max(worst, float(np.nanmax(np.abs(wide - e)) / np.nanmax(np.abs(e))))
    return worst


def masked(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, mask=causal)


@pytest.mark.usefixtures("always_worth")
@pytest.mark.parametrize("name", SOME)
def test_the_schedules_of_a_gpu_compute_the_same(name: str) -> None:
    """Catches wrong shares of fragments, of tiles past the end, of what is computed after the loop."""
    function, arguments = PROGRAMS[name]
    plan = stitch_jit(function).plan(*arguments, device="h200")
    assert sum("a loop of" in k.source for k in plan.kernels) == 1
    assert any("ST_MULTIPLY(" in k.source for k in plan.kernels) or "any lengths" in name or name == "cross"
    found = jax.jit(stitch(function, schedule_device="h200"))(*arguments)
    half = any(np.asarray(a).dtype == jnp.bfloat16 for a in jax.tree.leaves(arguments))
    assert errors(found, exactly(function, arguments)) < (0.02 if half else 8 * TF32)


@pytest.mark.usefixtures("always_worth")
@pytest.mark.parametrize(
    "name", ["kernel times a vector", "kernel times a matrix", "kernel's gradient", "rectified products"]
)
def test_products_that_tensor_cores_do_not_take(name: str) -> None:
    """Points in three dimensions, or times a vector: catches a product that is taken for one of two matrices."""
    function, arguments = PROGRAMS[name]
    found = jax.jit(stitch(function, schedule_device="h200"))(*arguments)
    assert errors(found, exactly(function, arguments)) < 8 * TF32


@pytest.mark.usefixtures("always_worth")
def test_bfloat16_is_computed_with_as_float32_where_there_is_nothing_else() -> None:
    """Catches that an A100's program, which rounds each step back, is taken for three sweeps."""
    arguments = tuple(jnp.asarray(a, jnp.bfloat16) for a in heads(48))
    plan = stitch_jit(masked).plan(*arguments, device="a100")
    assert sum("a loop of" in k.source for k in plan.kernels) == 1
    found = jax.jit(stitch(masked, schedule_device="a100"))(*arguments)
    theirs = errors(jax.jit(masked)(*arguments), exactly(masked, arguments))
    assert errors(found, exactly(masked, arguments)) < 2 * theirs


@pytest.mark.usefixtures("always_worth")
def test_who_asks_for_more_precision_gets_it() -> None:
    with jax.default_matmul_precision("highest"):
        found = jax.jit(stitch(attention, schedule_device="h200"))(*heads(48))
        plan = stitch_jit(attention).plan(*heads(48), device="h200")
    assert "ST_MULTIPLY(" not in "".join(k.source for k in plan.kernels)
    assert errors(found, exactly(attention, heads(48))) < 1e-6


def halves(n: int) -> tuple[Any, ...]:
    return tuple(jnp.asarray(a[:1, :, :1], jnp.bfloat16) for a in heads(n, 64))


@pytest.mark.usefixtures("always_worth")
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_threads_take_their_shares_of_fragments(dtype: str) -> None:
    """Catches races, threads that leave a loop while others wait in it, and a factor's element that is with another
    thread than the instruction has it with.
    """
    arguments = tuple(a[:1, :, :1] for a in heads(64, 32)) if dtype == "f32" else halves(64)
    target = devices.get("h200")
    with mock.patch.object(choice, "TILE", 32):
        made = stitch_capture(capture(masked, arguments, target), target)
    checked = check_function(made, arguments)
    assert checked.launches and not checked.errors
    exact = exactly(masked, arguments)
    assert errors(checked.results, exact) < (8 * TF32 if dtype == "f32" else 0.02)


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("h200", jnp.float32),
        ("h200", jnp.bfloat16),
        ("h100", jnp.float16),
        ("a100", jnp.float32),
        ("a100", jnp.bfloat16),
    ],
)
def test_nothing_is_spilled(device: str, dtype: Any) -> None:
    """Catches more sums than a thread has registers for."""
    target = devices.get(device)
    assert target.sm is not None
    q = jax.ShapeDtypeStruct((2, 2048, 8, 64), dtype)
    made = stitch_capture(capture(attention, (q, q, q), target), target)
    kernels = [compile_ptx(s, target.sm) for s in made.sources if "ST_MULTIPLY(" in s.text]
    assert kernels and all("mma.sync" in k.ptx for k in kernels)
    assert not any(k.spill_bytes or k.stack_bytes for k in kernels)


def test_a_gradient_is_two_launches() -> None:
    """Catches scores that are written, and sums that are divided in kernels of their own."""

    def gradient(q: Any, k: Any, v: Any, g: Any) -> Any:
        return jax.vjp(masked, q, k, v)[1](g)

    q = jax.ShapeDtypeStruct((2, 1024, 8, 64), jnp.float32)
    plan = stitch_jit(gradient).plan(q, q, q, q, device="h200")
    assert plan.launches == 2 and plan.bytes < 2.5 * plan.bound_bytes


def test_what_follows_is_computed_by_the_same_threads() -> None:
    """Catches epilogues that are left: a sum with an array from before, in another order of dimensions."""

    def layer(x: Any, q: Any, k: Any, v: Any) -> Any:
        return x + 0.5 * jnp.tanh(attention(q, k, v)).reshape(x.shape)

    q = jax.ShapeDtypeStruct((2, 1024, 8, 64), jnp.float32)
    plan = stitch_jit(layer).plan(jax.ShapeDtypeStruct((2, 1024, 512), jnp.float32), q, q, q, device="h200")
    assert (plan.launches, plan.bytes) == (1, plan.bound_bytes)
