"""Products of exchanged operands: the same results, where that is how the readers want them, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch import graph as graphs
from jax_stitch import stitch_jit
from jax_stitch.frontend.capture import cuda_plugin_installed
from jax_stitch.fusion.rewrites.operand_layouts import upright
from jax_stitch.fusion.rewrites.swapped_operands import exchanged
from jax_stitch.graph import Graph, Node
from tests.fusion import forced

BATCH, HEADS, LENGTH, FEATURES = 2, 3, 4, 5
SIZE = f"{BATCH * HEADS},{LENGTH},{FEATURES}"
PRODUCT = f"""
  %scores = f32[6,4,7] parameter(0)
  %keys = f32[6,7,5] parameter(1)
  %bias = f32[6,4,5] parameter(2)
  %zero = f32[] constant(0)
  %half = f32[] constant(0.5)
  %wide = f32[{SIZE}] broadcast(%half), dimensions={{}}
  %dot = f32[{SIZE}] dot(%scores, %keys), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}},
    rhs_contracting_dims={{1}}
  %scaled = f32[{SIZE}] multiply(%dot, %wide)
  %heads = f32[2,3,4,5] reshape(%scaled)
"""
"""The gradient of attention's queries, [batch, heads, length, features]."""
FOR_WEIGHTS = "%turned = f32[3,5,2,4] transpose(%heads), dimensions={1,3,0,2}"
FOR_DATA = "%moved = f32[2,4,3,5] transpose(%heads), dimensions={0,2,1,3}\n  %flat = f32[8,15] reshape(%moved)\n"
FOR_DATA += "  %weight = f32[15,6] parameter(3)\n"
FOR_DATA += "  %data = f32[8,6] dot(%flat, %weight), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SUM = "%sum = f32[2,3,5] reduce(%heads, %zero), dimensions={2}, to_apply=%add"
ADD = "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
ADD += "  ROOT %s = f32[] add(%a, %b)\n}\n"
READERS = {
    "weights": (FOR_WEIGHTS, "turned", "f32[3,5,2,4]"),
    "data": (FOR_DATA, "data", "f32[8,6]"),
    "sum": (SUM, "sum", "f32[2,3,5]"),
    "alike": ("%alike = f32[6,4,5] add(%scaled, %bias)", "alike", "f32[6,4,5]"),
    "itself": ("", "dot", "f32[6,4,5]"),
}
BATCH_SUM = "%batch = f32[4,5] reduce(%dot, %zero), dimensions={0}, to_apply=%add"
SPLIT = "%over = f32[6,5,4] transpose(%dot), dimensions={0,2,1}\n"
SPLIT += "  %parts = f32[5,4] reduce(%over, %zero), dimensions={0}, to_apply=%add"
READERS |= {"batch sum": (BATCH_SUM, "batch", "f32[4,5]"), "split": (SPLIT, "parts", "f32[5,4]")}
"""Of a product that was split along what it contracts: its parts are summed up in the order in which they come."""


def built(*readers: str) -> Graph:
    lines = [READERS[r][0] for r in readers]
    results = ", ".join(f"%{READERS[r][1]}" for r in readers)
    types = ", ".join(READERS[r][2] for r in readers)
    return forced.graph_from(PRODUCT + "  " + "\n  ".join(lines) + f"\n  ROOT %out = ({types}) tuple({results})", ADD)


def results(graph: Graph) -> list[np.ndarray]:
    """By NumPy: XLA would compile an example for longer than it takes to look at."""
    rng = np.random.default_rng(0)
    found = {p: rng.normal(size=graph[p].tensor.dims).astype(np.float32) for p in graph.parameters}
    for node in graph.nodes:
        if node.op != "parameter":
            found[node.id] = evaluated(node, [found[o] for o in node.operands])
            assert found[node.id].shape == node.tensor.dims
    return [found[i] for i in graph.results]


def evaluated(node: Node, operands: list[np.ndarray]) -> np.ndarray:
    match node.op:
        case "constant":
            assert node.literal is not None
            return node.literal
        case "broadcast":
            return np.broadcast_to(operands[0], node.tensor.dims)  # Of single numbers.
        case "reshape":
            return operands[0].reshape(node.tensor.dims)
        case "transpose":
            return operands[0].transpose(node.attributes["dimensions"])
        case "reduce":
            return operands[0].sum(node.attributes["dimensions"])
        case "multiply":
            return operands[0] * operands[1]
        case "add":
            return operands[0] + operands[1]
    assert node.op == "dot"
    return product(node.attributes, *operands)


def product(attributes: Mapping[str, Any], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    batch, contracted = (
        [attributes.get(f"{side}_{kind}_dims", ()) for side in ("lhs", "rhs")] for kind in ("batch", "contracting")
    )
    letters = [list("abcdef"[: left.ndim]), list("uvwxyz"[: right.ndim])]
    for one, other in zip(batch[0] + contracted[0], batch[1] + contracted[1], strict=True):
        letters[1][other] = letters[0][one]
    kept = [[own[d] for d in range(len(own)) if d not in batch[k] + contracted[k]] for k, own in enumerate(letters)]
    result = [letters[0][d] for d in batch[0]] + kept[0] + kept[1]
    return np.einsum(f"{''.join(letters[0])},{''.join(letters[1])}->{''.join(result)}", left, right)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(sorted(READERS)), min_size=1, unique=True))
def test_results_stay(readers: list[str]) -> None:
    """Exchanged where more readers want the product turned around than as it is."""
    before = built(*readers)
    after = exchanged(before)
    turned, own = ({"weights", "split"} & set(readers), {"alike", "batch sum"} & set(readers))
    assert (after is not before) == (len(turned) > len(own) and "itself" not in readers)
    expected = results(before)
    for graph in (after, upright(after)):
        graphs.verify(graph)
        for a, b in zip(expected, results(graph), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_the_copy_is_along_memory() -> None:
    """The product's result is [heads, features, length], and what reads it moves whole rows of it."""
    after = exchanged(built("weights", "data"))
    dot = next(n for n in after.nodes if n.op == "dot")
    assert dot.tensor.dims == (6, 5, 4)
    assert after[dot.operands[0]].name == "keys"
    assert dot.attributes["lhs_contracting_dims"] == (1,) and dot.attributes["rhs_contracting_dims"] == (2,)


def test_the_parts_of_a_split_product_are_summed_along_memory() -> None:
    after = exchanged(built("split"))
    assert next(n for n in after.nodes if n.op == "dot").tensor.dims == (6, 5, 4)


@pytest.mark.skipif(not cuda_plugin_installed(), reason="plans for GPUs need a jax-cuda plugin")
def test_no_launch_only_turns_a_product_around() -> None:
    """Attention and its gradient, as XLA compiles the rebuilt program: XLA turns the queries' gradient around for one
    weight gradient, and the product of probabilities and values for another.
    """

    def attention(x: jax.Array, merged: jax.Array, out: jax.Array) -> jax.Array:
        q, k, v = (a.reshape(32, 128, 12, 64) for a in jnp.split(x @ merged, 3, -1))
        weights = jax.nn.softmax(jnp.einsum("...qhd,...khd->...hqk", q * 0.125, k), -1)
        mixed = jnp.einsum("...hqk,...khd->...qhd", weights, v).reshape(4096, 768)
        return ((mixed @ out) ** 2).sum()

    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((4096, 768), (768, 2304), (768, 768))]
    plan = stitch_jit(jax.grad(attention, (0, 1, 2))).plan(*arrays, device="h200")
    kernels = [k.name for k in plan.stitched_traffic.kernels if not k.library]
    assert not [name for name in kernels if "transpose" in name], kernels
