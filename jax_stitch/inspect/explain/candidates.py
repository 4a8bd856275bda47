"""The patterns that hold an instruction, beside the one that was chosen, and what the evaluators say of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from jax_stitch.analysis.sizes import is_of_one_number
from jax_stitch.devices import Device
from jax_stitch.fusion import FusionPlan
from jax_stitch.fusion.delta_evaluator import fits_a_block
from jax_stitch.fusion.launches.form_launches import kernels_of
from jax_stitch.fusion.outcome import outcome_of
from jax_stitch.fusion.plan_cost import Prediction, predicted
from jax_stitch.fusion.search import Candidate as Grown
from jax_stitch.fusion.search import Search
from jax_stitch.fusion.seeds import Seed, elementwise_seeds, reduction_seeds
from jax_stitch.graph.model import Graph
from jax_stitch.inspect.explain.model import Alternative
from jax_stitch.loops.loop_patterns import stitched_loops

NEAR = 300
"""Nodes around an instruction among which patterns that hold it are looked for."""

PLANNED_AGAIN = 1500
"""Nodes of the largest graph that is planned again around each candidate."""

MOST = 6
"""Candidates that an explanation has."""


def candidates(
    graph: Graph, node: int, plan: FusionPlan, chosen: Collection[frozenset[str]], device: Device
) -> tuple[Alternative, ...]:
    """Return the largest pattern that holds ``node`` under each split of the work that reaches it, the closest to the
    chosen plan first.

    ``graph`` is what ``plan`` was made of. ``chosen`` are the names of the instructions of the patterns that hold the
    node in the plan: these are no others.
    """
    search = Search(graph, device, stitched_loops(graph, device))
    if node not in search.free:
        return ()
    near = _around(graph, node, search.free)
    own = predicted(plan, device)
    by_nodes: dict[frozenset[int], Alternative] = {}
    for seed in _seeds(graph, node, near, device):
        grown = search.within(near, seed)
        pattern = grown.pattern
        if pattern is None or node not in pattern.nodes or pattern.nodes in by_nodes:
            continue
        names = frozenset(names_of(graph, pattern.nodes))
        if names in chosen:
            continue
        by_nodes[pattern.nodes] = _judged(graph, grown, search, own, device)
    ordered = sorted(by_nodes.values(), key=lambda c: (bool(c.refused), c.behind or 0.0, -c.gain.seconds))
    return tuple(ordered[:MOST])


def _seeds(graph: Graph, node: int, near: set[int], device: Device) -> Iterator[Seed]:
    """Split of reductions and scans nearby, and of the instruction and what is next to it element by element."""
    yield from reduction_seeds(graph, near, device)
    beside = {node, *graph[node].operands, *graph.users[node]} & near
    yield from elementwise_seeds(graph, beside, device)


def _around(graph: Graph, node: int, free: Collection[int]) -> set[int]:
    """Return the nearest nodes that could be in a pattern with one."""
    near, waiting = {node}, deque([node])
    while waiting and len(near) < NEAR:
        i = waiting.popleft()
        for o in (*graph[i].operands, *graph.users[i]):
            if o in free and o not in near:
                near.add(o)
                waiting.append(o)
    return near


def names_of(graph: Graph, nodes: Collection[int]) -> Iterator[str]:
    """Yield the names of what is more than a number that every reader makes for itself."""
    for i in sorted(nodes):
        if not is_of_one_number(graph, i):
            yield graph[i].name or graph[i].op


def _judged(graph: Graph, grown: Grown, search: Search, own: Prediction, device: Device) -> Alternative:
    """Return what the evaluators say of a pattern, and of the plan that takes it first and then the best that is
    left.
    """
    pattern = grown.pattern
    assert pattern is not None
    gain = search.gain(pattern)
    names = tuple(names_of(graph, pattern.nodes))
    seed = graph[grown.seed.node]
    described = f"{len(pattern.nodes):,} instructions by the {pattern.rows:,} rows of {seed.name or seed.op}"
    refused = ""
    if grown.gain is None:
        refused = _why_not(graph, grown, search, device)
    elif not search.is_kernel(pattern, gain):
        refused = "XLA has one kernel of it already, and it saves less than a launch takes"
    if refused or len(graph) > PLANNED_AGAIN:
        return Alternative(described, names, gain, refused, None, None)
    around = Search(graph, device, stitched_loops(graph, device))
    around.take(grown)  # Found in the same state that this search begins in.
    around.complete()
    outcome = outcome_of(around)
    made = FusionPlan(outcome.graph, kernels_of(outcome, device, packs=True), (), {})
    seconds = predicted(made, device)
    return Alternative(
        described,
        names,
        gain,
        "",
        seconds.seconds,
        seconds.seconds - own.seconds,
        seconds.launches - own.launches,
    )


def _why_not(graph: Graph, grown: Grown, search: Search, device: Device) -> str:
    pattern = grown.pattern
    assert pattern is not None
    if not fits_a_block(graph, pattern, device):
        return "what a block would have to hold does not fit its memory"
    if search.gain(pattern).seconds <= 0:
        return "it costs more than it saves"
    if search.crossed(pattern):
        return "its reductions across rows would take two steps, in place of one kernel of XLA's"
    return "it would share a launch only at a cost in bytes"
