"""Reductions along columns on a CPU: whole rows by block where cores would read short runs of every row."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.patterns.pattern import FusionPlan
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion.columns import column_bytes, column_bytes_of_xla
from jax_stitch.pipeline import stitch_capture
from jax_stitch.util.options.planner_names import PlannerName
from tests.fusion import forced

TWO = forced.device("cpu", multiprocessors=2)
ONE = forced.device("cpu", multiprocessors=1)


def batch_norm(x: Any) -> Any:
    places = tuple(range(x.ndim - 1))
    return (x - x.mean(places)) * jax.lax.rsqrt(x.var(places) + 1e-5)


def gradient(x: Any) -> Any:
    return jax.grad(lambda x: jnp.tanh(batch_norm(x)).sum())(x)


def softmax(axis: int) -> Callable[[Any], Any]:
    return lambda x: jax.nn.softmax(x, axis=axis)


def plan_of(fun: Callable[..., Any], dims: tuple[int, ...], device: Device) -> FusionPlan:
    captured = capture(fun, [jax.ShapeDtypeStruct(dims, jnp.float32)], device)
    return stitch_capture(captured, device, PlannerName.BEAM).plan


def has_parts(plan: FusionPlan) -> bool:
    """Whether whole rows are added up, and what blocks have is joined."""
    return any(node.op == PARTIAL for node in plan.graph.nodes)


def in_columns(plan: FusionPlan) -> int:
    return sum(column_bytes(plan.graph, p, TWO) for kernel in plan.kernels for p in kernel)


@pytest.mark.parametrize(
    ("fun", "dims"),
    [(batch_norm, (16, 28, 28, 64)), (batch_norm, (1024, 512)), (softmax(0), (8192, 48)), (gradient, (1024, 512))],
    ids=["batch-norm", "matrix", "softmax", "gradient"],
)
def test_whole_rows_where_cores_would_share_them(fun: Callable[..., Any], dims: tuple[int, ...]) -> None:
    plan = plan_of(fun, dims, TWO)
    assert has_parts(plan) and not in_columns(plan)


@pytest.mark.parametrize(
    ("fun", "dims", "device"),
    [
        (softmax(0), (512, 256), TWO),  # The cores' own caches hold it.
        (softmax(1), (16, 1024, 64), TWO),  # Each core has matrices of its own, which it reads whole.
        (softmax(0), (128, 8192), TWO),  # As long as rows: there is too much to join.
        (batch_norm, (1024, 512), ONE),  # One core has all columns.
    ],
    ids=["small", "matrices", "short", "one core"],
)
def test_one_kernel_elsewhere(fun: Callable[..., Any], dims: tuple[int, ...], device: Device) -> None:
    plan = plan_of(fun, dims, device)
    assert len(plan.kernels) == 1 and not has_parts(plan)


@pytest.mark.parametrize(
    ("fun", "arrays"), [(lambda x: x.sum(0) + x.max(0), 1), (batch_norm, 2 + 2 * 2)], ids=["sum", "norm"]
)
def test_passes_are_read_again(fun: Callable[..., Any], arrays: int) -> None:
    """A sum and a maximum go over their columns once; a batch norm three times, and it writes as slowly as it reads."""
    plan = plan_of(fun, (1024, 512), ONE)
    ((pattern,),) = plan.kernels
    assert column_bytes(plan.graph, pattern, TWO) == arrays * 1024 * 512 * 4
    assert column_bytes(plan.graph, pattern, ONE) == 0


@pytest.mark.parametrize(
    ("dims", "axes", "arrays"), [((32, 784, 64), 1, 0), ((32, 784, 64), (0, 1), 1), ((64, 784), 1, 0)]
)
def test_what_xla_reads_in_runs(dims: tuple[int, ...], axes: int | tuple[int, ...], arrays: int) -> None:
    """As ours: not where each core has matrices of its own. A group norm's gradient was taken for much better than it
    was, since XLA's sums of its matrices were taken for slow."""
    graph = forced.graph_of(lambda x: x.sum(axes), jnp.zeros(dims))
    members = [n.id for n in graph.nodes if n.op == "reduce"]
    assert column_bytes_of_xla(graph, members, TWO) == arrays * 4 * prod(dims)


@pytest.mark.parametrize("fun", [batch_norm, gradient, softmax(0)], ids=["batch-norm", "gradient", "softmax"])
def test_the_same_numbers(fun: Callable[..., Any]) -> None:
    x = np.random.default_rng(3).normal(2.0, 1.0, (2048, 160)).astype(np.float32)
    stitched = np.asarray(stitch_jit(fun, mode="now")(x))
    with jax.enable_x64(True):
        exact = np.asarray(jax.jit(fun)(x.astype(np.float64)))
    np.testing.assert_allclose(stitched, exact, rtol=2e-4, atol=2e-5 * np.abs(exact).max())
