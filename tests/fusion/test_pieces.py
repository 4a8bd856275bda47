"""Large graphs in pieces: plans that can run and compute what they should, and like pieces planned once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jax_stitch.analysis.reach import Reach
from jax_stitch.analysis.support import is_rematerializable, reason_left
from jax_stitch.fusion import explore, pieces, planner
from jax_stitch.fusion.planners import beam
from jax_stitch.graph import Graph
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.values import replace
from tests.fusion import forced, test_plans
from tests.fusion.layered import random_graph
from tests.some import some

H200 = forced.device("h200")


@pytest.fixture
def only_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every graph is planned in pieces and in no other way."""
    monkeypatch.setattr(planner, "LARGEST_WHOLE", 0)
    yield


def free_nodes(graph: Graph) -> set[int]:
    return {n.id for n in graph.nodes if not is_rematerializable(n) and reason_left(graph, n) is None}


@pytest.mark.usefixtures("only_pieces")
@settings(max_examples=some(6, of=20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 30), st.integers(5, 120))
def test_plans_of_pieces_can_run(seed: int, operations: int) -> None:
    plan = explore(random_graph(Random(seed), operations), H200)
    test_plans.assert_patterns_are_sound(plan)
    test_plans.assert_kernels_do_not_wait_for_each_other(plan)
    for pattern in test_plans.patterns(plan):
        test_plans.assert_rows_cover_what_is_written(plan.graph, pattern)


@settings(max_examples=some(20, of=60), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(5, 120))
def test_every_node_is_in_one_piece_or_made_anew(seed: int, operations: int) -> None:
    """And no piece depends on itself through what lies outside it: layers never fall along an edge."""
    graph = random_graph(Random(seed), operations)
    free = free_nodes(graph)
    layer = pieces.layers(graph, free, ())
    for node in graph.nodes:
        for o in node.operands:
            crosses = graph[o].op == "dot"
            assert layer[o] + crosses <= layer[node.id]
    found = pieces.pieces(graph, free, ())
    nodes = [i for group, _ in found for i in group]
    copied = {i for _, needed in found for i in needed}
    assert len(nodes) == len(set(nodes)) and not copied & set(nodes)
    unread = free - set(nodes) - copied
    assert all(all(u in copied or u in unread for u in graph.users[i]) for i in unread)


@settings(max_examples=some(20, of=60), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(5, 120), st.integers(1, 4))
def test_pieces_and_loops_do_not_wait_for_each_other(seed: int, operations: int, loops: int) -> None:
    """A loop takes nodes from far apart into one kernel: what comes between them cannot share a piece with what that
    kernel reads.
    """
    rng = Random(seed)
    graph = random_graph(rng, operations)
    reach, taken = Reach(graph), list[set[int]]()
    for _ in range(loops):
        left = sorted(free_nodes(graph) - {i for loop in taken for i in loop})
        loop = reach.convex_part(rng.sample(left, min(len(left), rng.randrange(2, 12))))
        if len(loop) > 1:
            taken.append(loop)
            reach = reach.contracted(loop)
    free = free_nodes(graph) - {i for loop in taken for i in loop}
    for nodes, _ in pieces.pieces(graph, free, taken):
        reach = reach.contracted(nodes)


STANDS_BETWEEN: dict[str, Callable[[jax.Array], jax.Array]] = {
    "product": lambda a: a @ a.T @ a,
    "branch": lambda a: jax.lax.cond(a.sum() > 0, lambda b: b @ b.T @ b, lambda b: b - 1, a),
    "sum": lambda a: a / a.sum(),
    "solution": lambda a: jnp.linalg.solve(a @ a.T + jnp.eye(8), a),
    "sort": lambda a: jax.lax.sort(a, dimension=0),
}
until_nine = jax.vmap(jax.vmap(lambda a: jax.lax.while_loop(lambda c: c < 9, lambda c: c * 1.5 + jnp.abs(a) + 1, a)))


@pytest.mark.usefixtures("only_pieces")
@pytest.mark.parametrize("between", STANDS_BETWEEN)
@pytest.mark.parametrize("name", ["h200", "cpu"])
def test_a_loop_that_goes_on_beside_a_call(name: str, between: str) -> None:
    """The loop's kernel reads a value that also goes into what needs a call on the loop's first result."""
    a, b = np.random.default_rng(1).standard_normal((2, 8, 16), np.float32)

    def model(a: jax.Array, b: jax.Array) -> Any:
        ended = until_nine(a)
        shared = jnp.exp(b) + 1  # read by what follows the loop, and by what follows the call
        beside = jnp.sqrt(jnp.abs(ended) * shared) + jnp.log(shared)
        called = STANDS_BETWEEN[between](jnp.tanh(ended))
        return beside, called / shared - jnp.log(shared), called.sum(0) + shared.sum(0)

    with forced.everything_pays(3):
        assert forced.stitched(forced.hlo_of(model, a, b), forced.device(name)).kernels


def layers(x: jax.Array, *weights: jax.Array) -> jax.Array:
    for weight in weights:
        x = x + jax.nn.softmax(x @ weight, 1) * 2 - jnp.tanh(x).sum(0)
    return x


@pytest.mark.usefixtures("only_pieces")
def test_like_layers_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers between the first and the last cost nothing."""
    seen: list[Graph] = []

    def counted(graph: Graph, *rest: Any) -> Any:
        seen.append(graph)
        return beam.begin(graph, *rest)

    plans = planner.PLANNERS[PlannerName.BEAM]
    monkeypatch.setattr(planner, "PLANNERS", {PlannerName.BEAM: replace(plans, begin=counted)})
    x, weight = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((256, 128), (128, 128)))
    planned, kernels = [], []
    for count in (5, 12):
        seen.clear()
        plan = explore(forced.graph_of(layers, x, *[weight] * count), H200)
        planned.append(len(seen))
        kernels.append(len(plan.kernels))
    assert kernels[1] - kernels[0] == 12 - 5 and planned[1] == planned[0]


@pytest.mark.usefixtures("only_pieces")
@pytest.mark.parametrize("name", ["h200", "cpu"])
def test_programs_in_pieces_compute_the_same(name: str) -> None:
    """Pieces planned elsewhere and put in their places: a wrong place would be a wrong value."""
    rng = np.random.default_rng(0)
    x, *weights = rng.standard_normal((64, 48), np.float32), *rng.standard_normal((4, 48, 48), np.float32) / 7

    def model(x: jax.Array, *weights: jax.Array) -> Any:
        y = layers(x, *weights)
        scale = 1 / jnp.sqrt((y**2).sum())  # one number, which every piece behind it makes for itself
        return y * scale, (x * scale).sum(0), scale

    made = forced.stitched(forced.hlo_of(model, x, *weights), forced.device(name))
    assert made.kernels
    for got, want in zip(forced.run(made, (x, *weights)), jax.jit(model)(x, *weights), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)
