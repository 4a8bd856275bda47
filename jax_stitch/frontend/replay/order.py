"""In which order to run the segments and the remaining nodes: the topological order of the condensed graph."""

from __future__ import annotations

import heapq
from collections import defaultdict

from jax_stitch.graph.model import Graph
from jax_stitch.graph.opcodes import has_effect

from .stitched import Segment, StitchedGraph

Step = int | Segment
"""Evaluate one node, or run one segment."""


class ReplayError(RuntimeError):
    """The segments of a graph cannot be run as given: a mistake of the stitcher, not of its user."""


def order(stitched: StitchedGraph) -> tuple[Step, ...]:
    """Return the steps that the results and effects need, each after those it reads.

    Only what is needed runs: a node inside a segment is evaluated by itself only where something outside reads it and
    no segment returns it (a constant, say, that two kernels have each copied).

    Raises:
        ReplayError: a segment is malformed, or segments wait for one another.
    """
    graph = stitched.graph
    producer = _producers(graph, stitched.segments)

    def step_of(node: int) -> Step:
        return producer.get(node, node)

    needed: dict[Step, tuple[Step, ...]] = {}
    effects = (n.id for n in graph.nodes if has_effect(n))
    waiting = [step_of(i) for i in (*graph.parameters, *graph.results, *effects)]
    while waiting:
        step = waiting.pop()
        if step in needed:
            continue
        reads = step.waits_for if isinstance(step, Segment) else graph[step].operands
        needed[step] = tuple(dict.fromkeys(map(step_of, reads)))
        waiting += needed[step]
    return _sorted(graph, needed)


def _producers(graph: Graph, segments: tuple[Segment, ...]) -> dict[int, Segment]:
    producer: dict[int, Segment] = {}
    for segment in segments:
        if stray := [i for i in segment.outputs if i not in segment.nodes]:
            raise ReplayError(f"a segment of {graph.name} returns what it does not compute: {_names(graph, stray)}")
        if inside := [i for i in segment.inputs if i in segment.nodes]:
            raise ReplayError(f"a segment of {graph.name} reads what it computes itself: {_names(graph, inside)}")
        for output in segment.outputs:
            if output in producer:
                raise ReplayError(f"two segments of {graph.name} return {_names(graph, [output])}")
            producer[output] = segment
    return producer


def _sorted(graph: Graph, needed: dict[Step, tuple[Step, ...]]) -> tuple[Step, ...]:
    """Sort by Kahn's algorithm; among the steps that are ready, the one that came first in the HLO is next."""

    def rank(step: Step) -> int:
        return step if isinstance(step, int) else max(step.outputs)

    users: dict[Step, list[Step]] = defaultdict(list)
    missing: dict[Step, int] = {}
    for step, reads in needed.items():
        missing[step] = len(reads)
        for read in reads:
            users[read].append(step)
    ready = [(rank(step), number, step) for number, (step, count) in enumerate(missing.items()) if count == 0]
    heapq.heapify(ready)
    number, done = len(missing), []
    while ready:
        step = heapq.heappop(ready)[2]
        done.append(step)
        for user in users[step]:
            missing[user] -= 1
            if missing[user] == 0:
                number += 1
                heapq.heappush(ready, (rank(user), number, user))
    if len(done) != len(needed):
        raise ReplayError(_describe_cycle(graph, needed))
    return tuple(done)


def _describe_cycle(graph: Graph, needed: dict[Step, tuple[Step, ...]]) -> str:
    import networkx  # It takes longer to import than to replay a small function.

    edges = networkx.DiGraph([(read, step) for step, reads in needed.items() for read in reads])
    cycle = [step for step, _ in networkx.find_cycle(edges)]
    text = " -> ".join(_names(graph, [step] if isinstance(step, int) else step.outputs) for step in [*cycle, cycle[0]])
    return f"segments of {graph.name} wait for one another: {text}"


def _names(graph: Graph, nodes: tuple[int, ...] | list[int]) -> str:
    return ", ".join(f"%{i} {graph[i].name or graph[i].op}" for i in nodes)
