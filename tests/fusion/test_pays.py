"""Kernels of straight code against XLA's by their operations, and functions that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.patterns.pattern import FusionPlan
from jax_stitch.fusion import explore
from jax_stitch.fusion.pays import seconds_of_both
from tests.fusion import forced


def plan_of(function: Callable[..., Any], *args: Any, device: str = "zen4") -> FusionPlan:
    with jax.enable_x64(True):
        return explore(forced.graph_of(function, *args), devices.get(device))


def haversine(a: Any, b: Any) -> Any:
    """Distances of places from others, over the largest, by their angles."""
    latitude, longitude = a[:, None, 0] - b[None, :, 0], a[:, None, 1] - b[None, :, 1]
    half = jnp.sin(latitude / 2) ** 2 + jnp.cos(latitude) * jnp.sin(longitude / 2) ** 2
    distance = 2 * jnp.arcsin(jnp.sqrt(half))
    return distance / (1 + distance.max(1, keepdims=True))


def places(dtype: str) -> tuple[Any, Any]:
    return np.ones((200, 2), dtype), np.ones((300, 2), dtype)


def test_a_function_of_doubles_that_is_slower_than_xlas_is_left_to_it() -> None:
    """Sines of doubles go to the C library one by one: 2.1 ms in place of 1.5."""
    plan = plan_of(haversine, *places("float64"))
    assert not any(plan.graph[i].op in ("sine", "cosine") for k in plan.kernels for p in k for i in p.inside)


def normalised(x: Any) -> Any:
    return jnp.exp(x - x.max(1, keepdims=True)) / (1 + x.sum(1, keepdims=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_saves_memory_and_no_function_is_kept(dtype: str) -> None:
    plan = plan_of(normalised, np.ones((512, 512), dtype))
    assert plan.kernels
    for kernel in plan.kernels:
        own, xla = seconds_of_both(plan.graph, kernel, devices.get("zen4"))
        assert own < xla


def layers(x: Any, first: Any, second: Any) -> Any:
    return (jax.nn.gelu(jax.nn.gelu(x @ first) @ second) ** 2).sum()


@pytest.mark.parametrize(("device", "times"), [("zen4", 1), ("haswell", 1)])
def test_a_function_for_the_gradient_is_kept_on_a_cpu(device: str, times: int) -> None:
    """A tanh takes as long as five reads of its result: it was computed once more for the gradient."""
    args = (np.ones((128, 256), np.float32), np.ones((256, 256), np.float32), np.ones((256, 64), np.float32))
    plan = plan_of(jax.grad(layers, argnums=(1, 2)), *args, device=device)
    tanhs = [i for kernel in plan.kernels for p in kernel for i in p.inside if plan.graph[i].op == "tanh"]
    assert tanhs
    assert len(tanhs) <= times * len(set(tanhs))


def test_no_first_step_of_a_reduction_is_left_to_xla() -> None:
    """It has no equal there: the function raised."""

    def step(x: Any) -> Any:
        return jnp.any(x > 1), (jnp.sin(x) * x * 0.9).sum(0), jnp.sin(x) * 0.9

    x = np.linspace(-2, 2, 300 * 40).reshape(300, 40)
    plan = plan_of(step, x)
    inside = {i for kernel in plan.kernels for p in kernel for i in p.inside}
    assert all(n.id in inside for n in plan.graph.nodes if n.op == PARTIAL)
    with jax.enable_x64(True):
        for got, want in zip(stitch_jit(step, mode="now")(x), jax.jit(step)(x), strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-10)
