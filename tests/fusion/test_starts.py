"""Zeros that scatters start from, written by kernels that run before them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import devices
from jax_stitch.analysis.patterns.pattern import FusionPlan
from jax_stitch.devices import Device
from jax_stitch.fusion import explore
from jax_stitch.fusion.launches.starts import START_OF, own_starts
from jax_stitch.graph import Graph
from tests.fusion import forced

H200 = devices.get("h200")
ROWS, WIDE, UPDATES = 4096, 64, 96


def two_gradients(x: Any, y: Any, i: Any, j: Any) -> Any:
    """Return gradients of two tables of one shape, whose updates are a softmax, which takes a kernel."""
    zeros = jnp.zeros((ROWS, WIDE))
    return zeros.at[i].add(jax.nn.softmax(x, 0) * y), zeros.at[j].add(jax.nn.softmax(y, 0) * x)


def given(x: Any, i: Any) -> Any:
    """Return what a kernel makes of a scatter of arguments, before which no kernel runs."""
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return jax.nn.softmax(lax.scatter_add(jnp.zeros((ROWS, WIDE)), i, x, numbers), 0)


def arguments(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    floats = [rng.standard_normal((UPDATES, WIDE)).astype(np.float32) for _ in range(count)]
    return [*floats, *(rng.integers(0, ROWS, UPDATES).astype(np.int32) for _ in range(count))]


def starts(graph: Graph) -> list[int]:
    return [n.operands[0] for n in graph.nodes if n.op == "scatter"]


def plan_of(function: Any, args: list[np.ndarray], device: Device) -> FusionPlan:
    return explore(forced.graph_of(function, *args), device)


def test_each_scatter_has_zeros_from_a_kernel() -> None:
    """Catches zeros that XLA writes in launches of their own, one or two of them as its version is; and zeros that two
    scatters share, of which one would be copied.
    """
    plan = plan_of(two_gradients, arguments(2), H200)
    written = {i for kernel in plan.kernels for p in kernel for i in p.outputs}
    assert len(set(starts(plan.graph))) == 2 and set(starts(plan.graph)) <= written, str(plan)


def test_the_zeros_are_zeros() -> None:
    """Catches zeros that are written too late, in part, or over something else that is read."""
    args = arguments(2)
    made = forced.stitched_now(forced.hlo_of(two_gradients, *args), H200)
    assert set(starts(made.plan.graph)) <= {i for k in made.kernels for i in k.scheduled.outputs}
    for got, want in zip(forced.run(made, args), jax.jit(two_gradients)(*args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_nothing_waits_that_did_not(device: str) -> None:
    """Catches a scatter that waits for a kernel for its zeros alone: in a circle, as the kernel reads what it makes."""
    x, i = arguments(1)
    plan = plan_of(given, [x, i[:, None]], devices.get(device))
    written = {i for kernel in plan.kernels for p in kernel for i in p.outputs}
    assert written and written.isdisjoint(starts(plan.graph)), str(plan)


def test_a_cpu_keeps_what_is_shared() -> None:
    """Catches copies of arrays on a device where no kernel takes them over."""
    graph = forced.graph_of(two_gradients, *arguments(2))
    assert own_starts(graph, devices.get("cpu")) is graph
    assert not any(START_OF in n.attributes for n in graph.nodes)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_zeros_that_no_kernel_holds_stay_with_xla(dtype: str, device: str) -> None:
    """Catches a start of narrow numbers in a kernel, which has no type for them: an internal error."""
    x, y, i, j = arguments(2)

    def sums(x: Any, y: Any, i: Any, j: Any) -> Any:
        shares = jax.nn.softmax(x, 0) * y
        zeros = jnp.zeros((ROWS, WIDE), dtype)
        return zeros.at[i].add(shares.astype(dtype)), zeros.at[j].add((shares * 2).astype(dtype)), shares

    plan = plan_of(sums, [x, y, i, j], devices.get(device))
    written = {i for kernel in plan.kernels for p in kernel for i in p.outputs}
    assert written and written.isdisjoint(starts(plan.graph)), str(plan)
