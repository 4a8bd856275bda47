"""Factorizations and solves of batches of small matrices, as loops of one step.

What each column of a matrix leaves for the next is read at other places than where it was computed. Straight code
computes such a value again at each of them; a loop's step keeps it. Factorizations, solves and what is between them are
the body of a loop of one step, whose rows are the matrices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from hlo_parser import ELEMENT_TYPES
from jax_stitch.analysis.support import is_rematerializable, reason_left
from jax_stitch.graph.builder import Builder, moved
from jax_stitch.graph.model import Graph, GraphLayouts, Node, TensorType, TupleType
from jax_stitch.graph.rewrites.factorizations import expansion_of

SINGLE_STEP = "single_step"
"""Attribute of these loops."""

_COUNTER = TensorType("s32", ())


def in_single_step(graph: Graph, factorizations: Collection[int]) -> Graph | None:
    """Return the graph with these factorizations and solves in a loop of one step, which has the name of the first.
    None where something is between two of them that kernels cannot hold.
    """
    inside = _closure(graph, factorizations)
    return _looped(graph, inside) if all(_is_held(graph, graph[i], inside) for i in inside) else None


def _is_held(graph: Graph, node: Node, inside: Collection[int]) -> bool:
    """Return whether a loop in teams can hold a node."""
    if node.op == "while":
        return "trip_count" in node.attributes
    is_part = node.op == "get-tuple-element" and node.operands[0] in inside
    return is_part or node.op == "dot" or expansion_of(graph, node) is not None or reason_left(graph, node) is None


def _closure(graph: Graph, seeds: Collection[int]) -> set[int]:
    """Return the nodes from a seed to another, with the elements of tuples."""
    after, before = set(seeds), set(seeds)
    for node in graph.nodes:
        if not after.isdisjoint(node.operands):
            after.add(node.id)
    for node in reversed(graph.nodes):
        if not before.isdisjoint(graph.users[node.id]):
            before.add(node.id)
    inside = after & before
    return inside | {u for i in seeds for u in graph.users[i] if graph[u].op == "get-tuple-element"}


def _looped(graph: Graph, inside: Collection[int]) -> Graph:
    """Return the graph with these nodes as the body of a loop of one step, and its results in their places."""
    first = graph[min(inside)]
    outside = {o for i in inside for o in graph[i].operands} - set(inside)
    given = sorted(o for o in outside if not is_rematerializable(graph[o]))
    made = [
        i
        for i in sorted(inside)
        if isinstance(graph[i].type, TensorType) and (i in graph.result_set or not set(graph.users[i]) <= set(inside))
    ]
    types = (_COUNTER, *(graph[i].type for i in (*given, *made)))
    body = Builder("step")
    counter, *values = (body.parameter(t) for t in types)
    ids = dict(zip(given, values[: len(given)], strict=True))
    for node in graph.nodes:
        if node.id in inside or (is_rematerializable(node) and any(u in inside for u in graph.users[node.id])):
            ids[node.id] = body.add(moved(node, -1, tuple(ids[o] for o in node.operands)))
    one = body.constant(first, "s32", np.asarray(1, np.int32))
    following = body.derive(first, "add", _COUNTER, [counter, one])
    step = body.finish([following, *values[: len(given)], *(ids[i] for i in made)], False, GraphLayouts())
    test = Builder("test")
    at, *_ = (test.parameter(t) for t in types)
    end = test.constant(first, "s32", np.asarray(1, np.int32))
    goes_on = test.derive(first, "compare", TensorType("pred", ()), [at, end], {"direction": "LT"})
    graphs = {"body": step, "condition": test.finish([goes_on], True, GraphLayouts())}
    return _with_loop(graph, inside, given, made, graphs)


def _with_loop(
    graph: Graph,
    inside: Collection[int],
    given: Sequence[int],
    made: Sequence[int],
    graphs: Mapping[str, Graph],
) -> Graph:
    """Return the graph with a loop in the place of these nodes: what it does not need comes before it or after it."""
    after = set(inside)
    for node in graph.nodes:
        if not after.isdisjoint(node.operands):
            after.add(node.id)
    first, builder = graph[min(inside)], Builder(graph.name)
    ids = {i: builder.parameter(graph[i].type, graph[i].name, graph[i].source) for i in graph.parameters}

    def add(nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.id not in ids:
                ids[node.id] = builder.add(moved(node, -1, tuple(ids[o] for o in node.operands)))

    add(n for n in graph.nodes if n.id not in after)
    start = builder.constant(first, "s32", np.asarray(0, np.int32))
    zeros = []
    for i in made:
        type_ = graph[i].tensor
        zero = builder.constant(first, type_.dtype, np.zeros((), ELEMENT_TYPES[type_.dtype].numpy))
        zeros.append(builder.derive(first, "broadcast", type_, [zero], {"dimensions": ()}) if type_.dims else zero)
    body = graphs["body"]
    carried = TupleType(tuple(body[p].type for p in body.parameters))
    operands = [start, *(ids[i] for i in given), *zeros]
    loop = builder.derive(first, "while", carried, operands, {"trip_count": 1, SINGLE_STEP: True}, graphs)
    for k, i in enumerate(made):
        element = {"index": 1 + len(given) + k}
        ids[i] = builder.derive(graph[i], "get-tuple-element", graph[i].type, [loop], element)
    add(n for n in graph.nodes if n.id not in inside)
    return builder.finish([ids[r] for r in graph.results], graph.single, graph.layouts)
