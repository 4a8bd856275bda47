"""What every plan must be, on random functions: patterns that can run, one after the other, each from what it has."""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import pytest
from jax import lax

from bench.workloads import ALL
from jax_stitch import stitch_jit
from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import covers, index_of, inner_sizes
from jax_stitch.analysis.maps import reads
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.support import is_rematerializable, reason_left
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import cuda_plugin_installed
from jax_stitch.fusion import FusionPlan, Pattern
from jax_stitch.fusion.region import is_cached
from jax_stitch.graph import Graph
from jax_stitch.ir.indices import const
from tests.drawn import program
from tests.fusion import forced

DEVICES = [forced.device("cpu"), forced.device("h200"), forced.device("h200", multiprocessors=2)]


def random_plan(seed: int, target: Device, *, max_size: int = 3000) -> FusionPlan:
    with jax.enable_x64(True):
        made = program(Random(seed), steps=14, max_size=max_size)
        built = forced.graph_of(made.fun, *made.args)
    return forced.plan_of(built, target, seed)


def patterns(plan: FusionPlan) -> list[Pattern]:
    return [p for kernel in plan.kernels for p in kernel]


@pytest.mark.parametrize("seed", range(60))
def test_plans_can_run(seed: int) -> None:
    plan = random_plan(seed, DEVICES[seed % 3])
    assert_patterns_are_sound(plan)
    assert_kernels_do_not_wait_for_each_other(plan)
    for pattern in patterns(plan):
        assert_rows_cover_what_is_written(plan.graph, pattern)


@pytest.mark.parametrize("seed", [5, 7, 8])
def test_what_a_later_phase_makes_for_itself_is_gone_from_an_earlier_one(seed: int) -> None:
    """Attention: the weights' phase went on to read the values, 500 KB for one warp to wait for, and did nothing with
    them.
    """

    def attend(query: Any, keys: Any, scale: Any, values: Any) -> Any:
        weights = jax.nn.softmax((jnp.tanh(keys + query[:, None]) * scale).sum(-1), -1)
        return (weights[..., None] * values).sum(1)

    shapes = (8, 512), (8, 32, 512), (512,), (8, 32, 512)
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    assert_patterns_are_sound(forced.plan_of(forced.graph_of(attend, *args), forced.device("h200"), seed))


def assert_patterns_are_sound(plan: FusionPlan) -> None:
    graph, taken = plan.graph, set()
    for p in patterns(plan):
        assert not p.nodes & taken, "two patterns compute a node"
        taken |= p.nodes
        assert p.outputs, "nobody reads what it writes"
        assert set(p.outputs) <= p.nodes
        assert not set(p.inputs) & p.inside
        if p.loop is None:
            assert set(p.inputs) <= _operands_of_use(graph, p), "what nobody needs is read"
        for i in p.inside:
            missing = [
                o
                for o in graph[i].operands
                if o not in p.inside and o not in p.inputs and not is_rematerializable(graph[o])
            ]
            assert not missing, f"%{i} needs {missing}"
            held = graph[i].op == PARTIAL or (isinstance(p.loop, TeamLoop) and graph[i].op == "dot")
            assert held or reason_left(graph, graph[i]) is None
    read = {o for n in graph.nodes if n.id not in taken for o in n.operands} | set(graph.results)
    read |= {i for p in patterns(plan) for i in p.inputs}
    written = {i for p in patterns(plan) for i in p.outputs}
    for i in read & taken - written:
        # What replay evaluates by itself must not need a kernel's inner values either.
        assert graph[i].op != PARTIAL and all(i not in p.inputs for p in patterns(plan)), (
            f"%{i} is read, but not written"
        )


def _operands_of_use(graph: Graph, p: Pattern) -> set[int]:
    """The operands of all that a pattern's outputs are computed from."""
    of_use, waiting = set(p.outputs), list(p.outputs)
    while waiting:
        new = {o for o in graph[waiting.pop()].operands if o in p.inside} - of_use
        of_use |= new
        waiting += new
    return {o for i in of_use for o in graph[i].operands}


def assert_kernels_do_not_wait_for_each_other(plan: FusionPlan) -> None:
    graph = plan.graph
    writer = {i: ("kernel", k) for k, kernel in enumerate(plan.kernels) for p in kernel for i in p.outputs}
    edges = nx.DiGraph()
    for k, kernel in enumerate(plan.kernels):
        edges.add_edges_from((writer.get(i, i), ("kernel", k)) for p in kernel for i in p.inputs)
        phases = {i: p.phase for p in kernel for i in p.outputs}
        assert all(phases[i] < p.phase for p in kernel for i in p.inputs if i in phases), "no barrier between"
        if edges.has_edge(("kernel", k), ("kernel", k)):
            edges.remove_edge(("kernel", k), ("kernel", k))
    for node in graph.nodes:
        if node.id not in writer:
            edges.add_edges_from((writer.get(o, o), node.id) for o in node.operands)
    assert nx.is_directed_acyclic_graph(edges), nx.find_cycle(edges)


def assert_rows_cover_what_is_written(graph: Graph, pattern: Pattern) -> None:
    for i in pattern.outputs:
        if graph[i].op == PARTIAL:
            assert pattern.blocks is not None and graph[i].tensor.dims[0] == pattern.blocks
        elif isinstance(pattern.loop, TeamLoop):
            assert [s.result for s in pattern.loop.stacked].count(i) == 1, "straight code writes each value whole"
        else:
            assert covers(pattern.bindings[i], pattern.rows)
            assert prod(inner_sizes(pattern.bindings[i])) * pattern.rows == graph[i].tensor.size


@pytest.mark.parametrize("seed", range(100, 130))
def test_no_row_needs_another_rows_results(seed: int) -> None:
    """Locality by brute force: every element that any row evaluates, for any data."""
    plan = random_plan(seed, DEVICES[seed % 3], max_size=60)
    for pattern in patterns(plan):
        for row in range(pattern.rows):
            assert_row_is_local(plan.graph, pattern, row)


def assert_row_is_local(graph: Graph, pattern: Pattern, row: int) -> None:
    def in_row(i: int) -> set[tuple[int, ...]]:
        binding = pattern.bindings[i]
        places = range(prod(inner_sizes(binding)))
        return {tuple(e.evaluate({}) for e in index_of(binding, const(row), const(p))) for p in places}

    summed = [graph[i].operands[0] for i in pattern.nodes if graph[i].op == PARTIAL]
    waiting = [(i, at) for i in (*pattern.outputs, *summed) if i in pattern.bindings for at in in_row(i)]
    seen = set()
    while waiting:
        i, at = waiting.pop()
        if (i, at) in seen or i not in pattern.inside:
            continue
        seen.add((i, at))
        node = graph[i]
        if is_cached(graph, node) and i in pattern.bindings:
            assert at in in_row(i), f"row {row} needs {node.name}{at}"
            reduce = graph[node.operands[0]] if node.op == "get-tuple-element" else node
            kept = iter(at)
            dims = graph[reduce.operands[0]].tensor.dims
            reduced = reduce.attributes["dimensions"]
            ranges = [range(size) if d in reduced else [next(kept)] for d, size in enumerate(dims)]
            waiting += [(o, e) for o in reduce.operands[: len(reduce.operands) // 2] for e in product(*ranges)]
            continue
        for read in reads(graph, node, tuple(map(const, at))):
            waiting += [(node.operands[o], tuple(e.evaluate({}) for e in start)) for _, o, start in read.starts]
            unknown = sorted({v for e in read.index for v in e.variables()}, key=str)
            for values in product(*(range(v.low, v.high + 1) for v in unknown)):
                known = {v.name: x for v, x in zip(unknown, values, strict=True)}
                if all(g.low <= (v := g.value.evaluate(known)) <= g.high and v % g.step == 0 for g in read.guards):
                    waiting.append((node.operands[read.operand], tuple(e.evaluate(known) for e in read.index)))


def layer_norm_gradient(x, g, d):
    mean = x.mean(1, keepdims=True)
    r = lax.rsqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5)
    y = (x - mean) * r
    dy = d * g
    dx = r * (dy - dy.mean(1, keepdims=True) - y * (dy * y).mean(1, keepdims=True))
    return dx, (d * y).sum(0), d.sum(0)


X, G = jax.ShapeDtypeStruct((512, 300), jnp.float32), jax.ShapeDtypeStruct((300,), jnp.float32)


@pytest.mark.parametrize("target", DEVICES, ids=["cpu", "h200", "small"])
def test_one_pass_over_the_rows_and_one_over_the_blocks(target: Device) -> None:
    """The design's example: both column sums of a LayerNorm's gradient are partial results of its row kernel."""
    plan = forced.plan_of(forced.graph_of(layer_norm_gradient, X, G, X), target)
    first = [p for p in patterns(plan) if p.blocks is not None]
    assert len(first) == 1
    assert sum(plan.graph[i].op == PARTIAL for i in first[0].nodes) == 2
    assert first[0].rows == 512
    # On a CPU a launch costs too little to share; on a GPU the blocks' results are added up behind a barrier.
    assert [{p.phase for p in k} for k in plan.kernels] == ([{0, 1}] if target.kind == "cuda" else [{0}] * 3)


def test_what_another_operation_stands_between_is_apart() -> None:
    """A kernel cannot hold what comes before and what comes after an FFT; all else of it has one launch each."""
    plan = forced.plan_of(
        forced.graph_of(lambda x: jax.nn.softmax(jnp.fft.fft(jax.nn.softmax(x, 0)).real, 0), X), DEVICES[1]
    )
    assert len(plan.kernels) == 2


def test_small_kernels_join_their_neighbours() -> None:
    """The mean over columns of a mean over rows: two patterns that XLA runs as two kernels, here one launch."""
    plan = forced.plan_of(forced.graph_of(lambda x: (x.mean(1), x.mean(1).max()), X), DEVICES[1])
    assert len(plan.kernels) == 1


@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (lambda x: jax.nn.softmax(x, 1), 1),
        (lambda x: jax.nn.softmax(x, 0), 1),
        (lambda x: x / x.sum(1, keepdims=True) + x.max(1, keepdims=True), 1),
        (lambda x: jnp.flip(jnp.exp(x), 1).reshape(512, 3, 100).sum(2), 1),
    ],
)
def test_what_is_local_is_one_kernel(function, kernels: int) -> None:
    for target in DEVICES:
        assert len(forced.plan_of(forced.graph_of(function, X), target).kernels) == kernels


@pytest.mark.parametrize("target", DEVICES[:2], ids=["cpu", "h200"])
def test_no_kernel_reads_copies_of_smaller_values(target: Device) -> None:
    """However much lies above a kernel (random masks are hundreds of operations), constants and rows' statistics are
    spread out where they are used, not written and read at full size.
    """

    def layers(x, w, key):
        for n in range(4):
            x = x + jax.nn.relu(dropout(x, jax.random.fold_in(key, n)) @ w)
            x = (x - x.mean(1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 1e-5)
        return (x**2).sum()

    def dropout(x, key):
        return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0.0)

    graph = forced.graph_of(jax.grad(layers, (0, 1)), jnp.ones((64, 256)), jnp.ones((256, 256)), jax.random.key(0))
    plan = forced.plan_of(graph, target)
    read = {i for p in patterns(plan) for i in p.inputs}
    assert [str(plan.graph[i]) for i in read if plan.graph[i].op == "broadcast"] == []


@pytest.mark.parametrize("target", DEVICES[:2], ids=["cpu", "h200"])
@pytest.mark.parametrize("taps", [2, 31])
def test_a_wide_window_reads_what_a_narrow_one_computes(taps: int, target: Device) -> None:
    """A depthwise convolution over a gated value, normalised: the gates of a wide one are computed once and kept."""

    def convolution(x, w):
        gated = jnp.pad(x / (1 + jnp.exp(-x)), ((0, 0), (taps // 2, taps // 2)))
        y = sum(w[k] * gated[:, k : k + x.shape[1]] for k in range(taps))
        return y - y.mean(1, keepdims=True)

    plan = forced.plan_of(forced.graph_of(convolution, X, jnp.arange(float(taps))), target)
    (summing,) = (
        {plan.graph[i].op for i in p.inside}
        for p in patterns(plan)
        if any(plan.graph[i].op == "reduce" for i in p.nodes)
    )
    assert ("exponential" in summing) == (taps == 2)


@pytest.mark.skipif(not cuda_plugin_installed(), reason="needs the CUDA plugin, to compile for a described GPU")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnn", "dynamic_rnn"])
def test_what_nobody_reads_any_more_parts_no_kernel(name: str) -> None:
    """A kernel that seems to wait for itself, where between two of its patterns stood one that both make anew."""
    workload = ALL[name]
    function, shapes = workload.abstract(workload.test_sizes[0], jnp.float32)
    plan = stitch_jit(function).plan(*shapes, device="t4")
    assert plan.launches < plan.xla_launches
