"""A thread of a GPU takes neighbouring rows at once where rows run fastest; lanes share reductions that keep places."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.checking import check_function
from jax_stitch.latency import latency
from jax_stitch.schedule.model import InnerReducePass, Order
from jax_stitch.schedule.runs import SECTOR
from tests.fusion import forced

H200 = devices.get("h200")
RANDOM = np.random.default_rng(7)
ACCESS = re.compile(r"\b(?:ld|st)\.global[\w.:]*?(?:\.v(2|4))?\.[bfsu](8|16|32|64)\b")


def widths_in(ptx: str) -> set[int]:
    """The bits that a thread moves with one access of global memory. Read in PTX: a disassembler need not be here."""
    return {int(vector or 1) * int(bits) for vector, bits in ACCESS.findall(ptx)}


def column_softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=0)


def column_statistics(x: Any) -> Any:
    mean = x.mean(axis=0)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(axis=0) + 1e-5), mean


def middle_maximum(x: Any) -> Any:
    return x - x.max(axis=1, keepdims=True)


def column_argmax_and_sum(x: Any) -> Any:
    return jnp.argmax(x, axis=0), jnp.cumsum(x, axis=0)


def group_norm(groups: int) -> Callable[..., Any]:
    def function(x: Any, scale: Any) -> Any:
        g = x.reshape(*x.shape[:-1], groups, -1).astype(jnp.float32)
        axes = (*range(1, x.ndim - 1), x.ndim)
        mean = g.mean(axis=axes, keepdims=True)
        variance = ((g - mean) ** 2).mean(axis=axes, keepdims=True)
        normal = ((g - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)
        return (normal * scale).astype(x.dtype)

    return function


def with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    def both(x: Any, scale: Any, given: Any) -> Any:
        value, back = jax.vjp(function, x, scale)
        return value, *back(given)

    return both


def array(*shape: int, dtype: Any = np.float32) -> Any:
    return jax.device_put(RANDOM.standard_normal(shape).astype(dtype))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], set[int]]] = {
    "columns": (column_softmax, (array(300, 64),), {128}),
    "16 bits": (column_softmax, (array(300, 64, dtype=jnp.bfloat16),), {128}),
    "columns in pairs": (column_softmax, (array(300, 62),), {64}),
    "an odd number of columns": (column_softmax, (array(300, 63),), {32}),
    "fewer rows than lanes": (column_softmax, (array(3, 256),), {128}),
    "as many as registers hold": (column_softmax, (array(5, 256),), {64}),
    "stored once per row": (column_statistics, (array(300, 64),), {128}),
    "a middle axis": (middle_maximum, (array(6, 40, 64),), {128}),
    "a middle axis, odd": (middle_maximum, (array(6, 40, 9),), {32}),
    "pairs of what is reduced": (column_argmax_and_sum, (array(64, 32),), {32}),
    "groups of four channels": (group_norm(8), (array(512, 4, 4, 32), array(32)), {128}),
    "groups of two channels": (group_norm(16), (array(2, 8, 8, 32), array(32)), {64}),
    "groups of eight channels": (group_norm(4), (array(8, 8, 8, 32), array(32)), {128}),
    "groups of ten channels": (group_norm(4), (array(8, 8, 8, 40), array(40)), {64}),
    "groups of three channels": (group_norm(4), (array(2, 8, 8, 12), array(12)), {32}),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_widths(name: str) -> None:
    """Values of the row beside, a misaligned access, registers of another row, or a thread that reads too early."""
    function, args, widest = CASES[name]
    kernels = forced.stitched(forced.hlo_of(function, *args), H200)
    found = check_function(kernels, args)
    assert not found.errors, str(found)
    agree(found.results, jax.jit(function)(*args))
    widths = {max(widths_in(compile_ptx(k.source, "sm_90").ptx)) for k in kernels.kernels}
    assert widths <= widest | {32, 64, 16, 8} and max(widths) == max(widest), widths


@pytest.mark.parametrize("shape", [(8192, 1000), (8192, 1024), (16, 1 << 20)], ids=str)
def test_nothing_is_spilled(shape: tuple[int, int]) -> None:
    """Registers kept free for a second block that there is none of; or kept values that do not fit."""
    text = forced.hlo_of(column_softmax, jax.ShapeDtypeStruct(shape, jnp.float32))
    (kernel,) = forced.stitched(text, H200).kernels
    made = compile_ptx(kernel.source, "sm_90")
    assert made.spill_bytes == made.stack_bytes == 0 and widths_in(made.ptx) == {128}
    assert kernel.scheduled.blocks * kernel.scheduled.threads >= 64 * 1024


def test_host_runs_the_same_schedule() -> None:
    """Rows that a thread of a GPU has, left out or done twice on a host, where each is an iteration of its own."""
    for name in ("columns", "stored once per row", "groups of two channels"):
        function, args, _ = CASES[name]
        kernels = forced.stitched(forced.hlo_of(function, *args), H200)
        agree(forced.run(kernels, args), jax.jit(function)(*args))


@pytest.mark.parametrize("size", [8, 7, 11, 40])
def test_kept_sums_are_shared_out(size: int) -> None:
    """Shares that read each other's elements, are left out, or are combined before they are complete."""
    function = with_gradient(group_norm(8))
    args = array(3, size, size, 16), array(16), array(3, size, size, 16)
    kernels = forced.stitched(forced.hlo_of(function, *args), H200)
    found = check_function(kernels, args)
    assert not found.errors, str(found)
    agree(found.results, jax.jit(function)(*args))
    passes = [s for k in kernels.kernels for p in k.scheduled.parts for s in p.passes if isinstance(s, InnerReducePass)]
    shares = [s.shares for s in passes if prod(s.reduced) * s.shares >= size * size]
    assert shares and min(shares) > 1, shares


@pytest.mark.parametrize(
    ("image", "channels", "groups"), [(8, 64, 32), (7, 64, 16), (5, 66, 33), (11, 24, 3), (3, 32, 8)]
)
def test_groups_of_channels_are_neighbours_for_a_warp(image: int, channels: int, groups: int) -> None:
    """Threads of a warp that each read a piece of their own, or take another row's kept values, sums or places."""
    vector = max(v for v in (1, 2, 4) if channels // groups % v == 0)
    both = array(3, image, image, channels), array(channels), array(3, image, image, channels)
    for function, args in (group_norm(groups), both[:2]), (with_gradient(group_norm(groups)), both):
        kernels = forced.stitched(forced.hlo_of(function, *args), H200)
        found = check_function(kernels, args)
        assert not found.errors, str(found)
        agree(found.results, jax.jit(function)(*args))
        agree(forced.run(kernels, args), jax.jit(function)(*args))
        parts = [p for k in kernels.kernels for p in k.scheduled.parts if p.split.rows == 3 * groups]
        inside = [p for p in parts if not any(getattr(s, "partials", ()) for s in p.passes)]
        fills = 4 * (channels // groups) >= SECTOR
        assert {p.split.order for p in inside} <= {Order.LANES if fills else Order.ROWS}
        assert inside or len(args) == 3
        assert all(1 < v <= vector for p in inside for v in p.vectors.values())


@pytest.mark.parametrize(("image", "channels"), [(28, 256), (56, 256), (28, 512), (32, 320)])
def test_long_groups_are_read_once_and_in_vectors(image: int, channels: int) -> None:
    """Rows of 100 KB were read three times, 4 bytes at a time, since neighbouring rows fill sectors: their own channels
    do too. And what fills sectors was taken for a gather."""
    x, scale = (jax.ShapeDtypeStruct(d, jnp.float32) for d in ((32, image, image, channels), (channels,)))
    (kernel,) = forced.stitched(forced.hlo_of(group_norm(32), x, scale), H200).kernels
    widths = widths_in(compile_ptx(kernel.source, "sm_90").ptx)
    assert widths == {64 if channels == 320 else 128}
    (phase,) = latency(kernel.scheduled, H200).phases
    assert phase.bytes < 1.1 * 2 * 4 * 32 * image**2 * channels and phase.seconds < 1.2 * phase.memory


def agree(got: Any, wanted: Any) -> None:
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        tolerance = 2e-2 if w.dtype == jnp.bfloat16 else 3e-5
        expected = np.asarray(w, np.float64)
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(np.asarray(g, np.float64), expected, rtol=tolerance, atol=tolerance * scale)
