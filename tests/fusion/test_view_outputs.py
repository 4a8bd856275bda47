"""A value that a kernel makes in two shapes is written once, and each reader still gets its own shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from jax_stitch.devices import Device
from jax_stitch.fusion import FusionPlan, explore
from tests.fusion import forced

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


TURNED = """HloModule test

ENTRY %main {
  %x = f32[32,128,256]{2,1,0} parameter(0)
  %w = f32[256,64]{1,0} parameter(1)
  %z = f32[4096,64]{1,0} parameter(2)
  %e = f32[32,128,256]{2,1,0} exponential(%x)
  %y = f32[32,128,256]{2,1,0} tanh(%e)
  %flat = f32[4096,256]{1,0} bitcast(%y)
  %turned = f32[256,4096]{0,1} bitcast(%y)
  %forward = f32[4096,64]{1,0} dot(%flat, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %by_weights = f32[256,64]{1,0} dot(%turned, %z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %out = (f32[4096,64]{1,0}, f32[256,64]{1,0}) tuple(%forward, %by_weights)
}
"""
"""A layer's values are read along one dimension by the next product, and along the others by the gradient of its
weights: to XLA the second is the same array in another layout."""


def test_products_read_one_array_in_two_orders() -> None:
    made = forced.stitched(TURNED, forced.device("h200"))
    (kernel,) = made.plan.kernels
    (output,) = (i for p in kernel for i in p.outputs)
    assert made.plan.graph[output].tensor.size == 32 * 128 * 256
    generator = np.random.default_rng(0)
    x, w, z = (generator.standard_normal(s).astype(np.float32) for s in ((32, 128, 256), (256, 64), (4096, 64)))
    y = np.tanh(np.exp(x)).reshape(4096, 256)
    for got, wanted in zip(forced.run(made, (x, w, z)), (y @ w, y.T @ z), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


def test_a_result_that_is_turned_is_written() -> None:
    """Its place in memory is the caller's to say."""
    text = TURNED.replace("(f32[4096,64]{1,0}, f32[256,64]{1,0})", "(f32[4096,64]{1,0}, f32[256,4096]{0,1})")
    made = forced.stitched(
        text.replace("tuple(%forward, %by_weights)", "tuple(%forward, %turned)"), forced.device("h200")
    )
    outputs = {made.plan.graph[i].tensor.dims for kernel in made.plan.kernels for p in kernel for i in p.outputs}
    assert (256, 4096) in outputs
