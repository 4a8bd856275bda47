"""Subnormal numbers of narrow floats in kernels, where threads read those of float32 as zero, which bfloat16's are.

XLA's CPU compiler takes most of bfloat16's for zero: here NumPy says what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from jax_stitch import devices
from tests.fusion.forced import hlo_of, run, stitched

HALVES = ("bfloat16", "float16")
EIGHTS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")
Function = Callable[[Any], Any]


def small(dtype: str) -> np.ndarray:
    """Subnormal numbers of both signs, zeros, and the least normal ones, in rows."""
    type_ = jnp.dtype(dtype)
    info = ml_dtypes.finfo(type_)
    least, tiny = float(info.smallest_subnormal), float(info.tiny)
    sizes = least * np.random.default_rng(0).integers(0, round(tiny / least) + 2, (6, 24))
    sizes[:, 0] = 0
    sizes[:, 1] = least
    return np.where(np.arange(24) % 3 == 2, -sizes, sizes).astype(type_)


def rows(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


PROGRAMS: dict[str, tuple[Function, Function]] = {
    "not zero": (lambda x: x != 0, lambda x: x != 0),
    "zero": (lambda x: x == 0, lambda x: x == 0),
    "as a truth": (lambda x: x.astype(bool), lambda x: x != 0),
    "less": (lambda x: x[:-1] < x[1:], lambda x: x[:-1] < x[1:]),
    "at least": (lambda x: x >= x[:1], lambda x: x >= x[:1]),
    "selection": (lambda x: jnp.where(x > 0, x, x.dtype.type(1)), lambda x: np.where(x > 0, x, 1)),
    "sign": (jnp.sign, np.sign),
    "count": (lambda x: jnp.count_nonzero(x, axis=1), lambda x: np.count_nonzero(x, axis=1)),
    "sum of a selection": (lambda x: jnp.sum(jnp.where(x > 0, 1, 0), 1), lambda x: np.sum(x > 0, 1)),
    "any": (lambda x: jnp.any(x, 1), lambda x: (x != 0).any(1)),
    "relu": (jax.nn.relu, lambda x: np.maximum(x, 0)),
    "clip": (lambda x: jnp.clip(x, x[2:3], x[1:2]), lambda x: np.minimum(np.maximum(x, x[2:3]), x[1:2])),
    "max": (lambda x: jnp.max(x, 1), lambda x: x.max(1)),
    "min of columns": (lambda x: jnp.min(x, 0), lambda x: x.min(0)),
    "argmax": (lambda x: jnp.argmax(x, 1), lambda x: x.argmax(1)),
    "argmin": (lambda x: jnp.argmin(x, 1), lambda x: x.argmin(1)),
    "sort": (lambda x: jnp.sort(x, 1), lambda x: np.sort(x, 1)),
    "argsort": (lambda x: jnp.argsort(x, 1), lambda x: np.argsort(x, 1, kind="stable")),
    "cumulative max": (lambda x: lax.cummax(x, axis=1), lambda x: np.maximum.accumulate(x, 1)),
    "scan": (lambda x: lax.scan(lambda c, r: (jnp.minimum(c, r), c < r), x[0], x)[0], lambda x: x.min(0)),
}
IN_FLOAT32 = [name for name in PROGRAMS if name != "selection"]


def check(name: str, x: np.ndarray, function: Function, *, kernels: bool = True) -> None:
    """Compare a program that is stitched whatever that brings with NumPy's result for the same numbers."""
    made = stitched(hlo_of(function, x), devices.get("cpu"))
    assert made.kernels or not kernels
    found = np.asarray(run(made, (x,))[0])
    np.testing.assert_array_equal(found.astype(np.float64), np.float64(PROGRAMS[name][1](rows(x))))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", HALVES)
def test_they_are_numbers(dtype: str, name: str) -> None:
    """A bfloat16 below 1.2e-38 that counts as zero: ``x != 0``, extrema, orders."""
    check(name, small(dtype), PROGRAMS[name][0])


@pytest.mark.parametrize("name", IN_FLOAT32)
@pytest.mark.parametrize("dtype", HALVES)
def test_they_are_numbers_as_float32(dtype: str, name: str) -> None:
    """One that counts as zero once it is a float32, where XLA's ``!=`` has it as the number that it is."""
    check(name, small(dtype), lambda x: PROGRAMS[name][0](x.astype(jnp.float32)))


@pytest.mark.parametrize("name", ["not zero", "less", "count", "max", "argmax", "sort"])
@pytest.mark.parametrize("dtype", EIGHTS)
def test_they_are_numbers_of_eight_bits(dtype: str, name: str) -> None:
    """Floats of eight bits that are rounded to zero on the way to a float32."""
    check(name, small(dtype), lambda x: PROGRAMS[name][0](x.astype(jnp.float32)))


@pytest.mark.parametrize("name", ["not zero", "less", "count", "max", "argmin", "sort"])
def test_they_are_numbers_of_float32(name: str) -> None:
    """A float32 that is rounded to a subnormal bfloat16, and counts as zero from then on."""
    narrow = small("bfloat16").astype(np.float32)
    function = PROGRAMS[name][0]
    check(name, narrow, lambda x: function(lax.reduce_precision(x, 8, 7).astype(jnp.bfloat16)))


def test_reductions_in_two_steps() -> None:
    """The second step, which reads what the first has left as float32."""
    x = np.tile(small("bfloat16").reshape(-1, 4), (7000, 1))
    for function in (lambda x: jnp.max(x, 0), lambda x: jnp.max(x.astype(jnp.float32), 0)):
        made = stitched(hlo_of(function, x), devices.get("cpu"))
        np.testing.assert_array_equal(rows(np.asarray(run(made, (x,))[0])), rows(x).max(0))


@pytest.mark.parametrize("name", ["less", "at least", "max", "min of columns", "clip", "argmax"])
def test_what_is_no_number_stays_so(name: str) -> None:
    """Orders by bits, in which NaN is a number and -0 less than 0."""
    x = small("bfloat16")
    x[::2, 3], x[1, 5], x[2, 7], x[3, 7], x[4, 1] = np.nan, -np.nan, np.inf, -np.inf, -0.0
    expected = rows(np.asarray(PROGRAMS[name][1](rows(x))))
    made = stitched(hlo_of(PROGRAMS[name][0], x), devices.get("cpu"))
    np.testing.assert_array_equal(rows(np.asarray(run(made, (x,))[0])), expected)
