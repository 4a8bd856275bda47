"""Donated arguments under ``stitch_jit``, on the CPU and with an H200's kernels run on the CPU, against ``jax.jit`` of
arguments that are not donated. Catches: an array that is overwritten while somebody still needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from tests.drawn import differences, program
from tests.in_place.programs import PROGRAMS, Program, layer_norm

X = np.random.default_rng(7).standard_normal((37, 33)).astype(np.float32)


def on_cpu(fun: Callable[..., Any], donated: Sequence[int]) -> Any:
    return stitch_jit(fun, mode="now", strict=True, donate_argnums=donated)


def laid_out(fun: Callable[..., Any], donated: Sequence[int]) -> Any:
    return jax.jit(stitch(fun, schedule_device="h200", strict=True), donate_argnums=donated)


WAYS = {"cpu": on_cpu, "h200": laid_out}


def fresh(args: Sequence[np.ndarray]) -> list[jax.Array]:
    """Arrays with memory of their own, which can be given away."""
    return [jnp.array(a, copy=True) for a in args]


def assert_same(found: Any, wanted: Any) -> None:
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        tolerance = 4e-3 if got.dtype == np.float16 else 2e-5
        a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
        assert np.allclose(a, b, rtol=tolerance, atol=tolerance), np.max(np.abs(a - b))


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str, way: str) -> None:
    made: Program = PROGRAMS[name]
    args = made.args(3)
    function = WAYS[way](made.fun, made.donated)
    wanted = jax.jit(made.fun)(*fresh(args))
    for _ in range(2):  # The second call finds the program made, and memory that the first has used.
        assert_same(function(*fresh(args)), wanted)


@pytest.mark.parametrize("size", [1, 3, 7, 8, 15, 31, 33, 1023, 4097, 300_001])
def test_odd_lengths(size: int) -> None:
    """The last lanes of a vector, the last block; several threads from the largest on."""
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)

    def step(x: jax.Array, m: jax.Array) -> tuple[jax.Array, jax.Array]:
        m = 0.9 * m + jnp.tanh(x)
        return x - m, m

    wanted = jax.jit(step)(*fresh([x, x[::-1]]))
    assert_same(on_cpu(step, (0, 1))(*fresh([x, x[::-1]])), wanted)


def test_one_after_another() -> None:
    """As an optimizer runs: what one call has written over is what the next one reads."""
    made = PROGRAMS["adam"]
    p, m, v, g = made.args()
    ours, plain = on_cpu(made.fun, made.donated), jax.jit(made.fun)
    found, wanted = fresh([p, m, v]), tuple(fresh([p, m, v]))
    gradient = jnp.asarray(g)
    for _ in range(20):
        found = ours(*found, gradient)
        wanted = plain(*wanted, gradient)
    assert_same(found, wanted)
    assert_same(gradient, g)


@pytest.mark.parametrize("way", WAYS)
def test_one_value_for_two_arguments(way: str) -> None:
    """Inside another function, an argument given twice, or once as it is and once as an equal value, is one array."""

    def rolled(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.tanh(x) + jnp.roll(y, 1, 1) * 2

    inner = stitch(rolled, schedule_device=None if way == "cpu" else "h200")
    for around in (
        lambda x: inner(x, x),
        lambda x: inner(x, x.reshape(33, 37).reshape(37, 33)),
        lambda x: inner(x, x + 0),
        lambda x: (inner(x, x * 1), x.sum()),
    ):
        wanted = jax.jit(lambda x, f=around: f(x))(jnp.asarray(X))
        assert_same(jax.jit(around, donate_argnums=0)(jnp.array(X, copy=True)), wanted)


def test_an_argument_that_is_donated_and_given_again_is_an_error_as_under_jit() -> None:
    def added(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.tanh(x) + jnp.roll(y, 1, 1)

    told: list[str] = []
    for function in (jax.jit(added, donate_argnums=0), on_cpu(added, (0,))):
        x = jnp.array(X, copy=True)
        try:
            result = np.asarray(function(x, x))
            told.append("")
            assert_same(result, jnp.tanh(X) + jnp.roll(X, 1, 1))
        except (ValueError, RuntimeError) as error:
            told.append(re.sub(r"[\d.]+", "", str(error)))
    assert told[0] == told[1]


def test_what_is_not_donated_stays() -> None:
    x, given = jnp.asarray(X), np.array(X)
    for way in WAYS.values():
        way(layer_norm, ())(x)
        way(PROGRAMS["adam"].fun, ())(x, x, x, x)
        assert np.array_equal(np.asarray(x), given)
        assert not x.is_deleted()


def test_what_is_donated_is_gone_and_its_memory_is_the_results() -> None:
    x = jnp.array(X, copy=True)
    place = x.unsafe_buffer_pointer()
    result = on_cpu(layer_norm, (0,))(x)
    assert x.is_deleted() and result.unsafe_buffer_pointer() == place


@pytest.mark.parametrize("mode", ["auto", "async"])
def test_modes_in_the_background(mode: str) -> None:
    """A child process makes the program: it has to know what is donated."""
    function: Any = stitch_jit(PROGRAMS["adam"].fun, mode=mode, donate_argnums=(0, 1, 2))
    args = PROGRAMS["adam"].args()
    wanted = jax.jit(PROGRAMS["adam"].fun)(*fresh(args))
    for _ in range(3):
        assert_same(function(*fresh(args)), wanted)
        assert function.wait(120)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    """All arguments donated."""
    rng = Random(1000 + seed)
    with jax.enable_x64(True):
        made = program(rng, steps=10)
        donated = tuple(range(len(made.args)))
        plain = jax.jit(made.fun)(*fresh(made.args))
        for way in WAYS.values():
            got = way(made.fun, donated)(*fresh(made.args))
            wrong = differences(made, jax.tree.leaves(got), jax.tree.leaves(plain))
            assert not wrong, "\n".join([*wrong, repr(made)])
