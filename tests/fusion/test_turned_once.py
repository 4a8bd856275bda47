"""A value that products read in two orders is turned around once, and they compute what they did."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import graph as graphs
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.fusion import explore
from jax_stitch.fusion.rewrites.turned_once import turned_once
from jax_stitch.graph import Graph
from tests.fusion import forced

H200 = forced.device("h200")
INSIDE = """
%inside (p0: f32[9,16,32], p1: f32[32,8]) -> f32[144,8] {
  %p0 = f32[9,16,32]{2,1,0} parameter(0)
  %turned_inside = f32[16,9,32]{2,1,0} transpose(%p0), dimensions={1,0,2}
  %flat = f32[144,32]{1,0} bitcast(%turned_inside)
  %p1 = f32[32,8]{1,0} parameter(1)
  ROOT %forward = f32[144,8]{1,0} dot(%flat, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
"""A product that turns an operand around in its kernel."""
VALUES = """
  %x = f32[9,16,32] parameter(0)
  %w = f32[32,8] parameter(1)
  %g = f32[4,36,8] parameter(2)
  %e = f32[9,16,32] exponential(%x)
  %y = f32[9,16,32] tanh(%e)
"""
FORWARD = "%product = f32[144,8] fusion(%y, %w), kind=kCustom, calls=%inside"
OUTSIDE = """%shared = f32[16,9,32] transpose(%y), dimensions={1,0,2}
  %flat = f32[144,32]{1,0} bitcast(%shared)
  %product = f32[144,8] dot(%flat, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
BACKWARD = """%turned = f32[32,16,9] transpose(%y), dimensions={2,1,0}
  %parts = f32[32,4,36]{2,1,0} bitcast(%turned)
  %back = f32[4,32,8] dot(%parts, %g), lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={0}, \
rhs_contracting_dims={1}"""
BOTH = "ROOT %out = (f32[144,8], f32[4,32,8]) tuple(%product, %back)"


def built(*rest: str) -> Graph:
    return forced.graph_from(VALUES + "\n".join(f"  {line}" for line in rest), INSIDE)


def results(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=graph[p].tensor.dims), jnp.float32) for p in graph.parameters]
    run = replay(StitchedGraph(graph, (), {}))
    return [np.asarray(r) for r in jax.jit(lambda a: run(a))(arrays)]


def test_products_read_one_turned_value() -> None:
    """As a recurrence's outputs are read by a product and by the gradient of its weights under jax 0.11: what a kernel
    wrote was turned around by two launches more.
    """
    before = built(FORWARD, BACKWARD, BOTH)
    after = turned_once(before)
    graphs.verify(after)
    (turn,) = [n for n in after.nodes if n.op == "transpose"]
    assert turn.attributes["dimensions"] == (1, 0, 2) and turn.kernel == "turned"
    for a, b in zip(results(before), results(after), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_kernel_writes_it_once() -> None:
    plan = forced.plan_of(built(FORWARD, BACKWARD, BOTH), H200)
    written = [plan.graph[i] for kernel in plan.kernels for p in kernel for i in p.outputs]
    assert [n.tensor.dims for n in written] == [(16, 9, 32)]


def test_plans_turn_values_once() -> None:
    """The planner itself, where nothing is forced."""
    plan = explore(built(FORWARD, BACKWARD, BOTH), H200)
    assert sum(n.op == "transpose" for n in plan.graph.nodes) == 1


@pytest.mark.parametrize(
    "rest",
    [
        # Somebody else reads the one that would go.
        (FORWARD, BACKWARD, "%n = f32[32,16,9] negate(%turned)"),
        # Both are turned around outside: a kernel can write both.
        (OUTSIDE, BACKWARD, "%n = f32[4,32,8] negate(%back)"),
        # It is a result.
        (FORWARD, BACKWARD, "%n = f32[32,16,9] copy(%turned)"),
        # Its view has made one dimension of two that would lie apart.
        (
            FORWARD,
            "%turned = f32[32,16,9] transpose(%y), dimensions={2,1,0}",
            "%joined = f32[512,9]{1,0} bitcast(%turned)",
            "%h = f32[9,2] constant({" + ",".join(["{1,2}"] * 9) + "})",
            "%n = f32[512,2] dot(%joined, %h), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ),
        # Two of its dimensions are the result's own, in this order.
        (
            FORWARD,
            "%turned = f32[32,16,9] transpose(%y), dimensions={2,1,0}",
            "%h = f32[9,2] constant({" + ",".join(["{1,2}"] * 9) + "})",
            "%n = f32[32,16,2] dot(%turned, %h), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
        ),
    ],
    ids=["read", "outside", "result", "joined", "kept"],
)
def test_others_stay(rest: tuple[str, ...]) -> None:
    last = rest[-1].split(" = ")[1].split(" ")[0]
    before = built(*rest, f"ROOT %out = (f32[144,8], {last}) tuple(%product, %n)")
    assert turned_once(before) is before


def test_what_a_library_makes_is_turned_inside() -> None:
    """What turns it around for the other product is a launch wherever it stands: beside others late in the program."""
    values = VALUES.replace(
        "%y = f32[9,16,32] tanh(%e)",
        """%m = f32[144,32] reshape(%e)
  %v = f32[32,32] parameter(3)
  %p = f32[144,32] dot(%m, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %y = f32[9,16,32] bitcast(%p)""",
    )
    before = forced.graph_from("\n  ".join((values, FORWARD, BACKWARD, BOTH)), INSIDE)
    assert turned_once(before) is before


def test_one_order_stays() -> None:
    """A single product that turns its operand around does so."""
    before = built(FORWARD, "ROOT %out = f32[144,8] negate(%product)")
    assert turned_once(before) is before


@pytest.mark.parametrize("seed", range(12))
def test_drawn_orders(seed: int) -> None:
    """Two products of two drawn orders, with views that cut and join dimensions: the results stay."""
    rng = np.random.default_rng(seed)
    products: list[list[str]] = []
    types: list[str] = []
    for k in range(2):
        order = [int(d) for d in rng.permutation(3)]
        a, b, c = turned = [(4, 6, 8)[d] for d in order]
        view = [turned, [a * b, c], [a, b * c], [a // 2, 2, b, c], [a, b // 2, 2 * c]][int(rng.integers(5))]
        contracted = int(rng.integers(len(view)))
        batch = [d for d in range(len(view)) if d != contracted and rng.random() < 0.4]
        sizes = [view[d] for d in batch]
        free = [view[d] for d in range(len(view)) if d != contracted and d not in batch]
        kinds = {"turned": turned, "view": view, "other": [*sizes, view[contracted], 3], "n": [*sizes, *free, 3]}
        shape = {name: f"f32[{','.join(map(str, dims))}]" for name, dims in kinds.items()}
        products.append(
            [
                f"%turned{k} = {shape['turned']} transpose(%y), dimensions={{{','.join(map(str, order))}}}",
                f"%view{k} = {shape['view']} bitcast(%turned{k})",
                f"%other{k} = {shape['other']} parameter({k + 1})",
                f"%n{k} = {shape['n']} dot(%view{k}, %other{k}), lhs_batch_dims={{{','.join(map(str, batch))}}}, "
                f"lhs_contracting_dims={{{contracted}}}, rhs_batch_dims={{{','.join(map(str, range(len(batch))))}}}, "
                f"rhs_contracting_dims={{{len(batch)}}}",
            ]
        )
        types.append(shape["n"])
    turn, view_, other, dot = products[0]
    inside = f"%first (y: f32[4,6,8], other0: {other.split()[2]}) -> {types[0]} {{\n  %y = f32[4,6,8] parameter(0)\n"
    inside += f"  {turn}\n  {view_}\n  {other}\n  ROOT {dot}\n}}\n"
    lines = ["%x = f32[4,6,8] parameter(0)", "%y = f32[4,6,8] exponential(%x)", other, *products[1]]
    lines.append(f"%n0 = {types[0]} fusion(%y, %other0), kind=kCustom, calls=%first")
    lines.append(f"ROOT %o = ({', '.join(types)}) tuple(%n0, %n1)")
    before = forced.graph_from("\n".join(f"  {line}" for line in lines), inside)
    after = turned_once(before)
    graphs.verify(after)
    for a_, b_ in zip(results(before), results(after), strict=True):
        np.testing.assert_allclose(a_, b_, rtol=1e-4, atol=1e-4)
