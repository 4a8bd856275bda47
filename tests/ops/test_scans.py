"""Cumulative sums and the like inside kernels: every axis, direction and type, rows longer and shorter than a block."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch import stitch_jit
from tests.fusion import forced
from tests.some import some

TARGETS = {"cpu": forced.device("cpu"), "h200": forced.device("h200")}
SCANS = {"cumsum": jax.lax.cumsum, "cummax": jax.lax.cummax, "cummin": jax.lax.cummin, "cumprod": jax.lax.cumprod}
NUMPY = {
    "cumsum": np.cumsum,
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
    "cumprod": np.cumprod,
}


def on(target: str, function: Any, *args: Any) -> list[np.ndarray]:
    """The results of a function stitched for ``target``, with all it computes in kernels, run on this machine."""
    made = forced.stitched(forced.hlo_of(function, *args), TARGETS[target])
    assert made.kernels, "nothing was stitched"
    return forced.run(made, args)


def accumulated(kind: str, x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """By NumPy, in the type of ``x``."""
    flipped = np.flip(x, axis) if reverse else x
    found = NUMPY[kind](flipped, axis=axis, dtype=x.dtype)
    return np.flip(found, axis) if reverse else found


@settings(max_examples=some(4, of=12), deadline=None, derandomize=True)
@given(
    shape=st.lists(st.sampled_from((1, 2, 7, 33, 64, 257)), min_size=1, max_size=3).filter(
        lambda s: np.prod(s) < 20000
    ),
    axis=st.integers(0, 2),
    reverse=st.booleans(),
    kind=st.sampled_from(sorted(SCANS)),
    dtype=st.sampled_from((np.int32, np.uint8, np.int16)),
    target=st.sampled_from(sorted(TARGETS)),
)
def test_integers_are_exact(shape, axis, reverse, kind, dtype, target) -> None:
    axis %= len(shape)
    x = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)

    def function(x):
        return SCANS[kind](x, axis, reverse=reverse) + 1, x * 2

    got, _ = on(target, function, x)
    np.testing.assert_array_equal(got, accumulated(kind, x, axis, reverse) + dtype(1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("axis", [0, 1])
def test_floats_are_as_close_to_float64_as_XLAs(dtype, axis: int, target: str) -> None:
    """Sub-word floats are summed in float: XLA rounds each step, so that ours err less, never more than twice."""
    x = jnp.asarray(np.random.default_rng(1).uniform(0, 1, (130, 1500)), dtype)
    exact = np.cumsum(np.asarray(x, np.float64), axis)

    def function(x):
        return jnp.cumsum(x, axis, dtype=x.dtype)

    (got,) = on(target, function, x)
    xlas = jax.jit(function)(x)
    ours, theirs = (np.abs(np.asarray(a, np.float64) - exact).max() for a in (got, xlas))
    assert ours <= 2 * theirs + float(jnp.finfo(dtype).eps) * exact.max()


def exclusive(x):
    return jnp.cumsum(x, 1) - x


def in_softmax(x):
    """The scan is wanted by three passes over the row."""
    return jax.nn.softmax(jnp.cumsum(x, 1), 1)


def one_in_another(x):
    return jnp.cumsum(jnp.exp(jax.lax.cummax(x, 1) - x.max(1, keepdims=True)), 1)


def two_at_once(x):
    return jnp.cumsum(x, 1) / (1 + jnp.cumsum(abs(x), 1))


def both_ways(x):
    return jnp.cumsum(x, 1) + jax.lax.cumsum(x, 1, reverse=True)


def two_axes(x):
    return jnp.cumsum(jnp.cumsum(x, 0), 1)


def log_sum_exp(x):
    return jax.lax.cumlogsumexp(x, 1)


def summed_after(x):
    return (jnp.cumsum(x, 1) * x).sum(1), (jnp.cumsum(x, 1) ** 2).sum(0)


def elsewhere(x):
    """Read at other places than where the lanes are."""
    y = jnp.cumsum(x, 1)
    return y[:, ::-1] + x, y[:, -1:] * x, jnp.pad(y, ((0, 0), (1, 0)))[:, :-1]


PROGRAMS = (
    exclusive,
    in_softmax,
    one_in_another,
    two_at_once,
    both_ways,
    two_axes,
    log_sum_exp,
    summed_after,
    elsewhere,
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_with_scans(function, target: str) -> None:
    x = np.random.default_rng(2).standard_normal((37, 1100)).astype(np.float32)
    with jax.enable_x64(True):
        want = jax.tree.leaves(jax.jit(function)(x.astype(np.float64)))
    got = on(target, function, x)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-4 * np.abs(w).max())


@pytest.mark.parametrize("function", [jnp.isnan, jnp.signbit], ids=["nan", "sign"])
def test_special_values(function) -> None:
    """NaNs go on to the end of the row, and no further; a sum from 0 of -0 is 0."""
    x = jnp.asarray([[-0.0, jnp.inf, 1, jnp.nan, 2], [1, 2, 3, 4, 5]])
    for target in TARGETS:
        (got,) = on(target, lambda x: jnp.cumsum(x, 1), x)
        np.testing.assert_array_equal(function(got), function(jax.jit(lambda x: jnp.cumsum(x, 1))(x)))


@pytest.mark.parametrize(
    ("function", "axis"), [(jnp.cumsum, 0), (jnp.cumsum, 1), (jax.lax.cumlogsumexp, 1)], ids=["columns", "rows", "lse"]
)
def test_a_scan_with_what_is_around_it_is_one_launch(function, axis: int) -> None:
    """XLA needs four or more and moves more; here each value is read once and written once."""
    x = jax.ShapeDtypeStruct((8192, 1024), jnp.float32)
    plan = stitch_jit(lambda x: function(jnp.exp(x), axis) * 2).plan(x, device="h200")
    assert plan.xla_launches >= 4
    assert (plan.launches, plan.bytes) == (1, plan.bound_bytes)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_reduction_that_leaves_places_does_not_read_a_scan(target) -> None:
    """Its lanes go over what it reduces, and a scan's value is only there while they go along the row."""
    x = np.arange(6, dtype=np.float32).reshape(6, 1)

    def function(x):
        scanned = jax.lax.cumsum(x * 2, 0, reverse=True)
        return scanned, jnp.floor(jax.lax.reduce_sum(scanned, (1,))) + 1

    got = on(target, function, x)
    for a, b in zip(got, function(x), strict=True):
        np.testing.assert_allclose(a, b)
