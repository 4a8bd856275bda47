"""Products that XLA pads for its libraries: the padding and the slice behind it are the planner's to stitch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import hlo_parser
from jax_stitch import devices, graph
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from jax_stitch.frontend.capture.options import default_options
from jax_stitch.fusion import explore

pytestmark = pytest.mark.skipif(not cuda_plugin_installed(), reason="needs JAX's CUDA plugin, for XLA's GPU compiler")


def layers(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    """Two layers, each between a normalisation and an activation."""

    def normal(y: jax.Array) -> jax.Array:
        return (y - y.mean(1, keepdims=True)) * jax.lax.rsqrt(y.var(1, keepdims=True) + 1e-3)

    return normal(jnp.tanh(normal(jnp.tanh(normal(x) @ first)) @ second))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_padding_is_stitched(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned on products without it, the rebuilt program got a kernel for each padding and each slice: more than
    XLA's own, whose fusions hold the slices. Triton needs none, so it is XLA without Triton that is asked.
    """
    target = devices.get("h200")
    shapes = [jax.ShapeDtypeStruct(s, jnp.dtype(dtype)) for s in ((39, 36), (36, 39), (39, 13))]
    without_triton = default_options(target)[1:]
    monkeypatch.setattr("jax_stitch.frontend.capture.program.default_options", lambda _: without_triton)
    flat = graph.build(hlo_parser.parse(capture(layers, shapes, target).text))
    products = [n for n in flat.nodes if n.op == "dot"]
    assert len(products) == 2
    for product in products:
        assert all(size % 8 == 0 for o in product.operands for size in flat[o].tensor.dims)
    plan = explore(flat, target)
    stitched = {i for kernel in plan.kernels for p in kernel for i in p.nodes}
    assert len(plan.kernels) <= 3  # Before, between and behind the products.
    values = [n for n in plan.graph.nodes if n.op in ("pad", "slice")]
    assert len(values) >= 4 and stitched >= {n.id for n in values}
