"""Products read their operands as they lie: the same results, in kernels whose reads and writes are along memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import graph as graphs
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.fusion import explore
from jax_stitch.fusion.delta_evaluator import strided_bytes
from jax_stitch.fusion.plan_cost import predicted
from jax_stitch.fusion.rewrites.operand_layouts import upright
from jax_stitch.graph import Graph
from tests.fusion import forced

H200 = forced.device("h200")
KEYS = """
  %x = f32[8,32,96] parameter(0)
  %bias = f32[32] parameter(1)
  %q = f32[24,32,32] parameter(2)
  %heads = f32[8,32,3,32]{3,2,1,0} bitcast(%x)
  %turned = f32[8,3,32,32] transpose(%heads), dimensions={0,2,3,1}
  %wide = f32[8,3,32,32] broadcast(%bias), dimensions={2}
  %keys = f32[8,3,32,32] add(%turned, %wide)
  %k = f32[24,32,32]{2,1,0} bitcast(%keys)
"""
"""Keys [batch, heads, features, length] of values [batch, length, heads, features], as XLA writes them."""
SCORES = "%scores = f32[24,32,32] dot(%q, %k), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
SCORES += "rhs_batch_dims={0}, rhs_contracting_dims={1}"
FROM_LEFT = "%scores = f32[24,32,32] dot(%k, %q), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
FROM_LEFT += "rhs_batch_dims={0}, rhs_contracting_dims={1}"
BOTH_KEPT = "%flat = f32[24] constant({" + ",".join("1" * 24) + "})\n  %scores = f32[32,32] dot(%k, %flat), "
BOTH_KEPT += "lhs_contracting_dims={0}, rhs_contracting_dims={0}"


def built(*rest: str) -> Graph:
    return forced.graph_from(KEYS + "\n".join(f"  {line}" for line in rest))


def results(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=graph[p].tensor.dims).astype(np.float32) for p in graph.parameters]
    run = replay(StitchedGraph(graph, (), {}))
    return [np.asarray(r) for r in jax.jit(lambda a: run(a))([jnp.asarray(a) for a in arrays])]


@pytest.mark.parametrize(
    "rest",
    [
        (f"ROOT {SCORES}",),
        (f"ROOT {FROM_LEFT}",),
        # Two products of the same keys, one of which exchanges the dimensions itself.
        (
            SCORES,
            "%again = f32[24,32,32] dot(%scores, %k), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
            "rhs_batch_dims={0}, rhs_contracting_dims={2}",
            "ROOT %out = (f32[24,32,32], f32[24,32,32]) tuple(%scores, %again)",
        ),
    ],
    ids=["right", "left", "twice"],
)
def test_turned_operands_are_read_as_they_lie(rest: tuple[str, ...]) -> None:
    before = built(*rest)
    after = upright(before)
    graphs.verify(after)
    turned = [n for n in after.nodes if n.op == "transpose" and n.attributes["dimensions"] == (0, 2, 1)]
    assert len(turned) == 1 and turned[0].kernel == "keys"
    for a, b in zip(results(before), results(after), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    for kernel in forced.plan_of(after, H200).kernels:
        assert all(strided_bytes(after, p) == 0 for p in kernel)


@pytest.mark.parametrize(
    "rest",
    [
        # Both dimensions are the result's own: in another order it would be another result.
        (f"ROOT {BOTH_KEPT}",),
        # Somebody else wants the keys as they are.
        (SCORES, "ROOT %out = (f32[24,32,32], f32[24,32,32]) tuple(%scores, %k)"),
        (
            SCORES,
            "%e = f32[8,3,32,32] exponential(%keys)",
            "ROOT %out = (f32[24,32,32], f32[8,3,32,32]) tuple(%scores, %e)",
        ),
    ],
    ids=["kept", "result", "read"],
)
def test_others_stay(rest: tuple[str, ...]) -> None:
    before = built(*rest)
    assert upright(before) is before


def test_what_lies_right_stays() -> None:
    """Queries: [batch, heads, length, features] of [batch, length, heads, features]."""
    text = KEYS.replace("dimensions={0,2,3,1}", "dimensions={0,2,1,3}").replace("dimensions={2}", "dimensions={3}")
    before = forced.graph_from(f"{text}  ROOT {SCORES}")
    assert upright(before) is before


def test_large_keys_share_the_launch_of_queries_and_values() -> None:
    """25 MB turned element by element would take longer than the launch that is saved."""

    def attention(x: jax.Array, merged: jax.Array, bias: jax.Array) -> jax.Array:
        q, k, v = jnp.split(x @ merged + bias, 3, -1)
        q, v = (jnp.transpose(a.reshape(32, 128, 12, 64), (0, 2, 1, 3)) for a in (q, v))
        k = jnp.transpose(k.reshape(32, 128, 12, 64), (0, 2, 3, 1))
        return jax.nn.softmax(q @ k, -1) @ v

    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((4096, 768), (768, 2304), (2304,))]
    plan = explore(forced.graph_of(attention, *arrays), H200)
    assert predicted(plan, H200).launches == 2
