"""On a CPU, a reduction that leaves places of a row goes along what lies in memory in order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch.schedule.model import InnerReducePass
from tests.fusion import forced

CPU = forced.device("cpu")


def factored(x: Any) -> Any:
    """Adafactor's statistics: sums of rows and of columns, and an update by both."""
    squared = x * x + 1e-30
    rows, columns = squared.mean(-1), squared.mean(-2)
    scale = rows / rows.mean()
    return x / jnp.sqrt(scale[..., None] * columns[..., None, :]), rows, columns, jnp.abs(x).sum()


def extremes(x: Any) -> Any:
    return x.max(-1), x.min(-2), jnp.where(x > 0, x, -x).max()


def wholes(x: Any) -> Any:
    return jnp.bitwise_or.reduce(x, axis=1), x.sum(0), jnp.sum(x // 3), x.prod(-1)


def halves(x: Any) -> Any:
    y = x.astype(jnp.bfloat16)
    return y.sum(-1), y.max(), (y * 2).sum(0)


def both(x: Any) -> Any:
    """Of several values: a maximum with its place."""
    return jnp.argmax(x, -1), x.sum(-1), x.sum()


def inner(made: Any) -> list[InnerReducePass]:
    parts = [p for k in made.kernels for p in k.scheduled.parts]
    return [s for p in parts for s in p.passes if isinstance(s, InnerReducePass)]


@pytest.mark.parametrize("shape", [(3, 128), (5, 131), (17, 1024), (2, 3, 129), (4, 5000), (1, 257), (130, 127)])
@pytest.mark.parametrize("fun", [factored, extremes, halves, both])
def test_results(fun: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
    made = forced.stitched(forced.hlo_of(fun, x), CPU)
    for got, want in zip(forced.run(made, [x]), jax.tree.leaves(jax.jit(fun)(x)), strict=True):
        tolerance = 2e-2 if want.dtype == jnp.bfloat16 else 2e-5
        np.testing.assert_allclose(
            np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int16])
def test_whole_numbers(dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 100, (19, 300)).astype(dtype)
    made = forced.stitched(forced.hlo_of(wholes, x), CPU)
    for got, want in zip(forced.run(made, [x]), jax.tree.leaves(jax.jit(wholes)(x)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_sum_that_does_not_start_from_zero() -> None:
    """The first value is added once; XLA:CPU adds it for each piece that it divides a sum into."""

    def started(x: Any) -> Any:
        rows = lax.reduce(x, np.float32(3), lax.add, (1,))
        return rows, x.sum(), (x - rows.max()).min()

    x = np.random.default_rng(0).standard_normal((5, 131)).astype(np.float32)
    made = forced.stitched(forced.hlo_of(started, x), CPU)
    np.testing.assert_allclose(forced.run(made, [x])[0], 3 + x.sum(-1), rtol=1e-5, atol=1e-5)


def test_sums_of_rows_are_read_in_order() -> None:
    """A lane for each row read one element of each: twice the time of Adafactor's kernel."""
    found = inner(forced.stitched(forced.hlo_of(factored, np.ones((128, 256), np.float32)), CPU))
    assert sorted((s.along, s.left, s.size) for s in found) == [(False, 256, 256), (True, 128, 256)]


def test_short_rows_are_left_to_lanes_of_their_own() -> None:
    """Where most lanes would have nothing to do, and what they have is soon joined."""
    found = inner(forced.stitched(forced.hlo_of(factored, np.ones((512, 16), np.float32)), CPU))
    assert found
    assert not any(s.along for s in found)


def test_beside_a_pass_in_runs_of_the_same_places() -> None:
    """A pass over as many places goes in runs of 64, for the sake of what it reads of rows and of columns."""

    def fun(x: Any, y: Any, a: Any) -> Any:
        rows = (x * x).sum((1, 2))
        scaled = jnp.abs(y * a[:, None] * y[3][None, :])
        return rows, (scaled * rows.max()).sum(), scaled * rows.max() + x.sum(0)

    rng = np.random.default_rng(1)
    args = [rng.standard_normal(s).astype(np.float32) for s in ((3, 16, 64), (16, 64), (16,))]
    made = forced.stitched(forced.hlo_of(fun, *args), CPU)
    (part,) = (p for k in made.kernels for p in k.scheduled.parts)
    assert part.periods == {1024: 64}
    assert any(s.along and s.size == 1024 for s in inner(made))
    for got, want in zip(forced.run(made, args), jax.tree.leaves(fun(*args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_accuracy_of_long_rows() -> None:
    """Blocks of what a lane sums are summed by themselves."""
    x = np.full((3, 100_003), 0.1, np.float32)
    made = forced.stitched(forced.hlo_of(factored, x), CPU)
    rows = forced.run(made, [x])[1]
    np.testing.assert_allclose(rows, np.mean(x.astype(np.float64) ** 2, -1), rtol=1e-6)
