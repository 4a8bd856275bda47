"""The least launches of a graph: right on every way through it, never more than a plan has, and reached by plans."""

from __future__ import annotations

from random import Random

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.analysis.sizes import is_of_one_number
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.fusion import explore
from jax_stitch.fusion.launch_bound import least_launches
from jax_stitch.fusion.plan_cost import predicted
from jax_stitch.graph import Graph
from tests.fusion import forced
from tests.fusion.layered import random_graph
from tests.some import some

H200 = forced.device("h200")


def on_every_way(graph: Graph) -> int:
    """The same counted way by way: computations with a product between each and the next."""

    def longest(i: int, is_after_product: bool) -> int:
        node = graph[i]
        if node.op == "dot":
            return max((longest(u, True) for u in graph.users[i]), default=0)
        computes = (
            node.op not in ("parameter", "tuple") and not is_rematerializable(node) and not is_of_one_number(graph, i)
        )
        further = max((longest(u, is_after_product and not computes) for u in graph.users[i]), default=0)
        return further + (computes and is_after_product)

    return max((longest(p, True) for p in graph.parameters), default=0)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 14))
def test_it_is_the_longest_way(seed: int, operations: int) -> None:
    graph = random_graph(Random(seed), operations)
    assert least_launches(graph) == on_every_way(graph)


@settings(max_examples=some(6, of=20), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(5, 80))
def test_no_plan_has_fewer(seed: int, operations: int) -> None:
    graph = random_graph(Random(seed), operations)
    assert predicted(explore(graph, H200), H200).launches >= least_launches(graph)


def attention(x: jax.Array, merged: jax.Array, bias: jax.Array, out: jax.Array) -> jax.Array:
    """Two layers: one product for queries, keys and values, which are added to and transposed apart."""
    for _ in range(2):
        q, k, v = (jnp.transpose((x @ merged + bias).reshape(8, 64, 3, 4, 32), (2, 0, 3, 1, 4))[n] for n in range(3))
        weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k * 0.125), -1)
        y = jnp.transpose(jnp.einsum("bhqk,bhkd->bhqd", weights, v), (0, 2, 1, 3)).reshape(512, 128)
        x = x + jnp.tanh(y @ out)
    return x


def test_layers_are_planned_in_as_few_launches_as_there_can_be() -> None:
    """Queries, keys and values are three kernels of XLA that only share what they slice: packed, they are one launch,
    as is all else between two products. The scores' two products are in one kernel, which the bound knows nothing of.
    """
    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((512, 128), (128, 384), (384,), (128, 128))]
    graph = forced.graph_of(attention, *arrays)
    assert predicted(explore(graph, H200), H200).launches == 4 < least_launches(graph) == 8


def test_what_no_kernel_holds_is_a_launch_and_a_product_is_none() -> None:
    def sorted_between(x: jax.Array) -> jax.Array:
        return jnp.exp(jnp.sort(jax.lax.complex(jnp.exp(x), x)).real) @ x

    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    assert least_launches(forced.graph_of(sorted_between, x)) == 3
