"""Costly values of few places, on a CPU, are computed once and kept for the longer passes that read them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.schedule.model import LoopPass
from tests.fusion import forced

H200, CPU = forced.device("h200"), forced.device("cpu")


def factored(g: Any) -> Any:
    """Adafactor's update: a power of a mean for each row, and one for each column."""
    squares = g * g + 1e-30
    rows, columns = squares.mean(-1), squares.mean(-2)
    row = (rows / rows.mean(-1, keepdims=True)) ** -0.5
    update = g * row[..., None] * (columns**-0.5)[..., None, :]
    return update / jnp.maximum(1.0, jnp.sqrt((update * update).mean((-2, -1), keepdims=True)))


def powers(kernels: Any) -> list[int]:
    """How many powers of those kernels are raised for each row: one for each place of their passes."""
    raised = []
    for kernel in kernels:
        graph = kernel.scheduled.graph
        for part in kernel.scheduled.parts:
            for s in part.passes:
                for i in s.keeps if isinstance(s, LoopPass) else ():
                    assert graph[i].op == "power"
                    raised.append(s.size)
    return sorted(raised)


@pytest.mark.parametrize("shape", [(96, 64), (5, 48, 40), (3, 7, 33)])
def test_powers_are_raised_once_for_each_row_and_column(shape: tuple[int, ...]) -> None:
    """A pass over the matrix raised two for each of its elements, and the next pass read them from memory."""
    g = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    stitched = forced.stitched(forced.hlo_of(factored, g), forced.device("haswell"))
    (kernel,) = stitched.kernels
    assert powers(stitched.kernels) == sorted(shape[-2:])
    graph, (part,) = kernel.scheduled.graph, kernel.scheduled.parts
    assert "power" not in {graph[i].op for i, _ in part.own_storage}
    (got,) = forced.run(stitched, [g])
    with jax.enable_x64(True):
        wanted = factored(jnp.asarray(g, jnp.float64))
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=1e-6)


def test_a_value_of_a_value_that_is_kept_is_kept_after_it() -> None:
    """Both are read by the long pass: neither's pass may come before what it reads."""

    def fun(x: Any, v: Any) -> Any:
        first = jnp.exp(v)
        second = jnp.log1p(first * first)
        return x * first[None, :] + second[None, :], jnp.tanh(x).sum()

    rng = np.random.default_rng(1)
    x, v = rng.standard_normal((64, 32)).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    stitched = forced.stitched(forced.hlo_of(fun, x, v), CPU)
    wanted = [np.asarray(a) for a in fun(x.astype(np.float64), v.astype(np.float64))]
    for got, want in zip(forced.run(stitched, [x, v]), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-5)


def test_what_other_rows_read_is_not_kept_for_one() -> None:
    """The value of each row is one of its own: another's would be read past the end."""

    def fun(x: Any) -> Any:
        e = jnp.exp(x[:, :4])
        turned = jnp.roll(e, 1, 0)
        return jnp.tile(turned, (1, 16)) * x + jnp.tile(e, (1, 16))

    x = np.random.default_rng(2).standard_normal((24, 64)).astype(np.float32)
    stitched = forced.stitched(forced.hlo_of(fun, x), CPU)
    (got,) = forced.run(stitched, [x])
    e = np.exp(x[:, :4].astype(np.float64))
    np.testing.assert_allclose(got, np.tile(np.roll(e, 1, 0), 16) * x + np.tile(e, 16), rtol=1e-6, atol=1e-6)


def test_values_of_as_many_places_as_the_pass_are_not_kept() -> None:
    def fun(x: Any) -> Any:
        e = jnp.exp(x)
        return e / e.sum(-1, keepdims=True)

    x = np.ones((8, 64), np.float32)
    assert powers(forced.stitched(forced.hlo_of(fun, x), CPU).kernels) == []


def test_a_gpus_kernels_are_as_they_were() -> None:
    g = np.ones((96, 64), np.float32)
    assert powers(forced.stitched(forced.hlo_of(factored, g), H200).kernels) == []
