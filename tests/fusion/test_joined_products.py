"""Products with an operand in common are one product, and what is computed stays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import graph as graphs
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.fusion import explore
from jax_stitch.fusion.rewrites import joined_products
from jax_stitch.fusion.rewrites.joined_products import products_joined
from jax_stitch.graph import Graph
from tests.fusion import forced

H200 = forced.device("h200")
COMPUTATIONS = """
%plus (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
%forward (p0: f32[64,32], p1: f32[32], p2: f32[32,24]) -> f32[64,24] {
  %p0 = f32[64,32]{1,0} parameter(0)
  %p1 = f32[32]{0} parameter(1)
  %wide = f32[64,32]{1,0} broadcast(%p1), dimensions={1}
  %shifted = f32[64,32]{1,0} add(%p0, %wide)
  %p2 = f32[32,24]{1,0} parameter(2)
  ROOT %dot = f32[64,24]{1,0} dot(%shifted, %p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
%more (p0: f32[64,32], p1: f32[32], p2: f32[32,8]) -> f32[64,8] {
  %p0 = f32[64,32]{1,0} parameter(0)
  %p1 = f32[32]{0} parameter(1)
  %wide = f32[64,32]{1,0} broadcast(%p1), dimensions={1}
  %shifted = f32[64,32]{1,0} add(%p0, %wide)
  %p2 = f32[32,8]{1,0} parameter(2)
  ROOT %dot = f32[64,8]{1,0} dot(%shifted, %p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
%back (p0: f32[64,32], p1: f32[32], p2: f32[24,64]) -> f32[32,24] {
  %p0 = f32[64,32]{1,0} parameter(0)
  %p1 = f32[32]{0} parameter(1)
  %wide = f32[64,32]{1,0} broadcast(%p1), dimensions={1}
  %shifted = f32[64,32]{1,0} add(%p0, %wide)
  %p2 = f32[24,64]{1,0} parameter(2)
  ROOT %dot = f32[32,24]{1,0} dot(%shifted, %p2), lhs_contracting_dims={0}, rhs_contracting_dims={1}
}
%split (p0: f32[2,32,32], p1: f32[32], p2: f32[8,64]) -> f32[2,8,32] {
  %p2 = f32[8,64]{1,0} parameter(2)
  %parts = f32[8,2,32]{2,1,0} bitcast(%p2)
  %p0 = f32[2,32,32]{2,1,0} parameter(0)
  %p1 = f32[32]{0} parameter(1)
  %wide = f32[2,32,32]{2,1,0} broadcast(%p1), dimensions={2}
  %shifted = f32[2,32,32]{2,1,0} add(%p0, %wide)
  ROOT %dot = f32[2,8,32]{2,1,0} dot(%parts, %shifted), lhs_batch_dims={1}, lhs_contracting_dims={2}, \
rhs_batch_dims={0}, rhs_contracting_dims={1}
}
"""
VALUES = """
  %z = f32[64,32] parameter(0)
  %x = f32[64,32] exponential(%z)
  %b = f32[32] parameter(1)
"""
FORWARD = ["%v = f32[32,24] parameter(2)", "%one = f32[64,24] fusion(%x, %b, %v), kind=kCustom, calls=%forward"]
MORE = ["%w = f32[32,8] parameter(3)", "%two = f32[64,8] fusion(%x, %b, %w), kind=kCustom, calls=%more"]
BACK = ["%v = f32[24,64] parameter(2)", "%one = f32[32,24] fusion(%x, %b, %v), kind=kCustom, calls=%back"]
SPLIT = [
    "%w = f32[8,64] parameter(3)",
    "%zero = f32[] constant(0)",
    "%halves = f32[2,32,32]{2,1,0} bitcast(%x)",
    "%products = f32[2,8,32] fusion(%halves, %b, %w), kind=kCustom, calls=%split",
    "%summed = f32[8,32] reduce(%products, %zero), dimensions={0}, to_apply=%plus",
    "%two = f32[32,8] transpose(%summed), dimensions={1,0}",
]
"""The gradient of weights whose sums XLA has split in two."""


def built(*lines: str) -> Graph:
    return forced.graph_from(VALUES + "\n".join(f"  {line}" for line in lines), COMPUTATIONS)


def results(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=graph[p].tensor.dims), jnp.float32) for p in graph.parameters]
    run = replay(StitchedGraph(graph, (), {}))
    return [np.asarray(r) for r in jax.jit(lambda a: run(a))(arrays)]


def joined(before: Graph) -> Graph:
    after = products_joined(before)
    graphs.verify(after)
    for a, b in zip(results(before), results(after), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return after


def dots(graph: Graph) -> list[tuple[int, ...]]:
    return [n.tensor.dims for n in graph.nodes if n.op == "dot"]


def test_products_of_one_operand() -> None:
    """As projections of one value, of which jax 0.11's XLA joins eight and the rest apart."""
    after = joined(built(*FORWARD, *MORE, "ROOT %out = (f32[64,24], f32[64,8]) tuple(%one, %two)"))
    assert dots(after) == [(64, 32)]


def test_a_product_that_xla_has_split() -> None:
    after = joined(built(*BACK, *SPLIT, "ROOT %out = (f32[32,24], f32[32,8]) tuple(%one, %two)"))
    assert dots(after) == [(32, 32)]
    assert not any(n.op in ("reduce", "transpose") for n in after.nodes)


def test_readers_of_parts_read_parts_of_the_whole() -> None:
    """Slices, and slices of views, are those of the joined product."""
    lines = [
        "%heads = f32[8,8,24]{2,1,0} bitcast(%one)",
        "%first = f32[8,8,12] slice(%heads), slice={[0:8], [0:8], [12:24]}",
        "%second = f32[64,4] slice(%two), slice={[0:64], [4:8]}",
        "%m = f32[8,8,24] negate(%heads)",
        "ROOT %out = (f32[8,8,12], f32[64,4], f32[8,8,24]) tuple(%first, %second, %m)",
    ]
    after = joined(built(*FORWARD, *MORE, *lines))
    (dot,) = [n for n in after.nodes if n.op == "dot"]
    cut = sorted(n.attributes["slice"][-1] for n in after.nodes if n.op == "slice")
    assert cut == [(0, 24, 1), (12, 24, 1), (28, 32, 1)]
    assert {after[u].op for u in after.users[dot.id]} == {"slice", "reshape"}


def test_parts_that_are_put_together_are_put_together_once() -> None:
    lines = [
        "%v1 = f32[32,10] parameter(2)",
        "%v2 = f32[32,14] parameter(3)",
        "%v = f32[32,24] concatenate(%v1, %v2), dimensions={1}",
        FORWARD[1],
        "%w = f32[32,8] parameter(4)",
        MORE[1],
        "ROOT %out = (f32[64,24], f32[64,8]) tuple(%one, %two)",
    ]
    (both,) = [n for n in joined(built(*lines)).nodes if n.op == "concatenate"]
    assert len(both.operands) == 3 and both.kernel == "v"


def test_three_products() -> None:
    lines = [
        "%u = f32[32,8] parameter(4)",
        "%three = f32[64,8] fusion(%x, %b, %u), kind=kCustom, calls=%more",
        "ROOT %out = (f32[64,24], f32[64,8], f32[64,8]) tuple(%one, %two, %three)",
    ]
    assert dots(joined(built(*FORWARD, *MORE, *lines))) == [(64, 40)]


OTHER = [
    "%w = f32[32,8] parameter(3)",
    "%y = f32[64,32] tanh(%x)",
    "%two = f32[64,8] fusion(%y, %b, %w), kind=kCustom, calls=%more",
]
AFTER = [
    "%w = f32[32,8] slice(%one), slice={[0:32], [0:8]}",
    "%two = f32[64,8] fusion(%x, %b, %w), kind=kCustom, calls=%more",
]
"""Of what the first product has made."""


@pytest.mark.parametrize(("first", "second"), [(FORWARD, OTHER), (FORWARD, AFTER)], ids=["other", "depends"])
def test_others_stay(first: list[str], second: list[str]) -> None:
    before = built(*first, *second, "ROOT %out = (f32[64,24], f32[64,8]) tuple(%one, %two)")
    assert products_joined(before) is before


def test_products_that_cross_stay() -> None:
    """Two pairs, each of whose second products needs the first of the other: one pair is joined."""
    lines = [
        *FORWARD,
        "%k = f32[24,8] slice(%one), slice={[0:24], [0:8]}",
        "%y = f32[64,32] parameter(3)",
        "%v2 = f32[32,24] parameter(4)",
        "%other = f32[64,24] fusion(%y, %b, %v2), kind=kCustom, calls=%forward",
        "%w = f32[32,8] slice(%other), slice={[0:32], [0:8]}",
        "%two = f32[64,8] fusion(%x, %b, %w), kind=kCustom, calls=%more",
        "%w2 = f32[32,8] slice(%one), slice={[0:32], [0:8]}",
        "%last = f32[64,8] fusion(%y, %b, %w2), kind=kCustom, calls=%more",
        "ROOT %out = (f32[24,8], f32[64,8], f32[64,8]) tuple(%k, %two, %last)",
    ]
    assert len(dots(joined(built(*lines)))) == 3


def test_large_products_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    before = built(*FORWARD, *MORE, "ROOT %out = (f32[64,24], f32[64,8]) tuple(%one, %two)")
    monkeypatch.setattr(joined_products, "SMALL", 4 * (64 * 32 + 32 * 8 + 64 * 8) - 1)
    assert products_joined(before) is before
    monkeypatch.setattr(joined_products, "SMALL", 4 * (64 * 32 + 32 * 8 + 64 * 8))
    assert products_joined(before) is not before


def test_sums_of_parts_that_others_read_stay() -> None:
    before = built(*BACK, *SPLIT, "ROOT %out = (f32[32,24], f32[32,8], f32[2,8,32]) tuple(%one, %two, %products)")
    assert products_joined(before) is before


def test_plans_have_one_product() -> None:
    """The planner itself."""
    plan = explore(built(*BACK, *SPLIT, "ROOT %out = (f32[32,24], f32[32,8]) tuple(%one, %two)"), H200)
    assert dots(plan.graph) == [(32, 32)]


@pytest.mark.parametrize("crossed", [False, True], ids=["layers", "crossed"])
def test_passes_do_not_grow_with_the_layers(crossed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a pass over the whole graph for each pair, which took a minute of 20,000 operations; and two pairs made
    products that each need the other.
    """

    def layers(x: jax.Array, weights: jax.Array, *, count: int) -> jax.Array:
        for k in range(count):
            a, b, c = (x @ weights[3 * k + j] for j in range(3))
            # Crossed, what one pair reads is made of one of the other's, and the other way round.
            y = a + (jnp.tanh(a) @ weights[3 * k + 1]) @ weights[3 * k] if crossed else a
            x = jnp.tanh(y * b - c) + (jnp.tanh(a) @ weights[3 * k]) * crossed
        return x

    passes: dict[int, int] = {}
    once = joined_products.ordered
    for count in (2, 6):
        seen: list[Graph] = []

        def noted(graph: Graph, seen: list[Graph] = seen) -> Graph:
            seen.append(graph)
            return once(graph)

        monkeypatch.setattr(joined_products, "ordered", noted)
        values = np.ones((16, 16), np.float32), np.ones((3 * count, 16, 16), np.float32)
        before = forced.graph_of(lambda x, w, n=count: layers(x, w / 16, count=n), *values)
        after = joined(before)
        dots = [sum(n.op == "dot" for n in g.nodes) for g in (before, after)]
        assert dots[1] <= dots[0] - 2 * count
        passes[count] = len(seen)
    assert passes[6] <= passes[2] + 1
