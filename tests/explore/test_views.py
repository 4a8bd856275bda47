"""A value that a kernel makes in two shapes is written once, and each reader still gets its own shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from jax_stitch.devices import Device
from jax_stitch.explore import FusionPlan, explore
from tests.explore import forced

X = jax.ShapeDtypeStruct((256, 512), jnp.float32)
W = jax.ShapeDtypeStruct((64, 32), jnp.float32)


def normalised(x: jax.Array) -> jax.Array:
    y = jnp.exp(x - x.max(1, keepdims=True))
    return y / y.sum(1, keepdims=True)


def one_result(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The value is a result, its other shape an operand of a product."""
    y = normalised(x)
    return y, y.reshape(-1, 64) @ w


def by_two_ways(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A shape of a shape, read by products alike."""
    y = normalised(x)
    heads = y.reshape(256, 8, 64)
    return y, heads.reshape(-1, 64) @ w + (heads @ w).reshape(-1, 32)


def two_results(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Results have a buffer each."""
    y = normalised(x)
    heads = y.reshape(256, 8, 64)
    return y, heads, heads @ w


def planned(function: object, device: Device) -> FusionPlan:
    return explore(forced.graph_of(function, X, W), device)


def written(plan: FusionPlan) -> int:
    """Values as large as the first argument that kernels write."""
    kernels = [{i for p in kernel for i in p.outputs} for kernel in plan.kernels]
    return sum(plan.graph[i].tensor.size == X.size for outputs in kernels for i in outputs)


@pytest.mark.parametrize("device", [forced.device("h200"), forced.device("cpu")], ids=["h200", "cpu"])
@pytest.mark.parametrize(("function", "buffers"), [(one_result, 1), (by_two_ways, 1), (two_results, 2)])
def test_buffers_written(function: object, buffers: int, device: Device) -> None:
    assert written(planned(function, device)) == buffers


@pytest.mark.parametrize("function", [one_result, by_two_ways, two_results])
def test_readers_get_their_shapes(function: object) -> None:
    generator = np.random.default_rng(0)
    x, w = (jnp.asarray(generator.standard_normal(s.shape), jnp.float32) for s in (X, W))
    want = jax.jit(function)(x, w)
    for stitched in (stitch_jit(function), jax.jit(stitch(function, schedule_device="h200"))):
        for got, wanted in zip(stitched(x, w), want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
