"""Reductions over a few elements on a CPU: one operation after the other, for a vector of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, graph, stitch_jit
from jax_stitch.fusion.rewrites.short_reductions import short_reductions
from tests.fusion import forced

ZEN3 = devices.get("zen3")


def numbers(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(0).integers(-9, 10, shape).astype(dtype)


def pairs(x: Any, y: Any) -> Any:
    return (x[:, None] - y[None]) ** 2


def reductions(function: Callable[..., Any], *arguments: Any) -> int:
    """Return how many reductions are left of a function."""
    built = graph.build(hlo_parser.parse(forced.hlo_of(jax.jit(function), *arguments)), {})
    return sum(n.op == "reduce" for n in short_reductions(built, ZEN3).nodes)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, y: pairs(x, y).sum(-1), [(20, 3), (30, 3)]),
        (lambda x, y: pairs(x, y).max(-1), [(20, 3), (30, 3)]),
        (lambda x, y: x.max(-1) - y.sum(0), [(80, 4), (3, 80)]),
        (lambda x, y: pairs(x, y).min(0), [(4, 50), (6, 50)]),
        (lambda x, y: (x * y).prod(1), [(8, 5, 30), (8, 5, 30)]),
        (lambda x, y: (x * jnp.arange(3) + y[:, None] * jnp.arange(70)[:, None]).sum(1), [(70, 3), (70,)]),
        (lambda x, y: (jnp.transpose(x, (2, 0, 1)) * y).sum(0), [(20, 30, 4), (4, 20, 30)]),
        (lambda x, y: jnp.where(x > y, y, x[0, 0]).sum(-1), [(100, 16), (100, 16)]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_values_stay(function: Callable[..., Any], shapes: list[tuple[int, ...]], dtype: str) -> None:
    """Catches terms from the wrong place, dimensions that are numbered wrongly, and an initial value that is lost."""
    arguments = [numbers(*s, dtype=dtype) for s in shapes]
    assert reductions(function, *arguments) == 0
    made = forced.stitched(forced.hlo_of(jax.jit(function), *arguments), ZEN3)
    (got,) = forced.run(made, arguments)
    np.testing.assert_allclose(got, jax.jit(function)(*arguments), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True),
        lambda x: x - x.max(-1, keepdims=True),
        lambda x: (x * 2).sum(0),
        lambda x: (x[:, :1] * 2).sum(),
        lambda x: [(x * 2), (x * 2).sum(-1)],
    ],
    ids=["softmax", "centred", "long", "few results", "returned too"],
)
def test_what_stays_a_reduction(function: Callable[..., Any]) -> None:
    """Catches exponentials that are computed twice: softmax of ten classes took twice as long as under `jax.jit`."""
    assert reductions(function, numbers(300, 5)) == 1


def test_distances_of_pairs_are_never_written() -> None:
    """Catches a pass that comes too late for what reads its results: XLA takes 12 times as long for the nearest."""
    plan = stitch_jit(lambda x, y: pairs(x, y).sum(-1).argmin(1)).plan(
        *(jax.ShapeDtypeStruct((1000, 3), jnp.float32),) * 2, device="zen3"
    )
    assert plan.launches == 1
    assert plan.bytes == plan.bound_bytes
