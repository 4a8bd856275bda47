"""Normalisation of the loops and conditionals in a loop's body, for the one thread that runs the whole body.

An inner loop of unknown trip count carries its own condition, like the outer loop. Each branch of a conditional becomes
a loop of at most one iteration: only the selected branch is computed. The final value of an induction variable becomes
a constant where the trip count is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis.patterns.nest import LIKELY_TRIPS
from jax_stitch.analysis.support import is_computed
from jax_stitch.graph.builder import Builder, moved, with_called
from jax_stitch.graph.model import Graph, Node, NodeType, TensorType, TupleType
from jax_stitch.loops.carried import counter_of
from jax_stitch.loops.rewrites.tested_last import with_tests_last
from jax_stitch.util.values import replace

_TRUTH = TensorType("pred", ())


def with_fit_inner_loops(graph: Graph, loop: int) -> Graph:
    """Return the graph with the loops and conditionals in the body of the ``while`` node ``loop`` normalised."""
    return with_called(graph, graph[loop], "body", fit_body(graph[loop].graphs["body"]))


def fit_body(body: Graph) -> Graph:
    """Return a body with the loops and conditionals in it normalised, recursively."""
    if not any(n.op in ("while", "conditional") for n in body.nodes):
        return body
    body = _without_conditionals(body)
    for number in range(sum(n.op == "while" for n in body.nodes)):
        loop = _loops(body)[number]
        body = with_fit_inner_loops(body, loop.id)
        body = with_tests_last(body, _loops(body)[number].id)
    return _with_known_counts(body)


def _loops(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op == "while"]


def _with_known_counts(body: Graph) -> Graph:
    """Return the body with constants for the induction variables of inner loops where they are read after the loop."""
    known: dict[int, Node] = {}
    for n in body.nodes:
        if n.op == "get-tuple-element" and body[n.operands[0]].op == "while":
            loop = body[n.operands[0]]
            trips, by = loop.attributes.get("trip_count"), counter_of(body, loop, n.attributes["index"])
            if trips is not None and by is not None:
                dtype = n.tensor.dtype
                kind = {"s": "int", "u": "uint"}[dtype[0]]
                value = np.asarray(by[0] + by[1] * trips).astype(f"{kind}{dtype[1:]}")
                known[n.id] = Node(n.id, "constant", n.type, (), literal=value, name=n.name, source=n.source)
    if not known:
        return body
    return replace(body, nodes=tuple(known.get(n.id, n) for n in body.nodes))


def _without_conditionals(body: Graph) -> Graph:
    """Return the body with a loop of at most one iteration for each branch of each conditional that allows it."""
    if not any(n.op == "conditional" for n in body.nodes):
        return body
    builder = Builder(body.name)
    ids = {i: builder.parameter(body[i].type, body[i].name, body[i].source) for i in body.parameters}
    results: dict[int, list[int]] = {}
    for n in body.nodes:
        if n.id in ids:
            continue
        if n.op == "get-tuple-element" and n.operands[0] in results:
            ids[n.id] = results[n.operands[0]][n.attributes["index"]]
            continue
        operands = tuple(ids[o] for o in n.operands)
        if n.op == "conditional" and _is_fit(body, n):
            made = _chosen(builder, n, operands)
            results[n.id] = made
            if isinstance(n.type, TensorType):
                ids[n.id] = made[0]
        else:
            ids[n.id] = builder.add(moved(n, -1, operands))
    return builder.finish([ids[r] for r in body.results], body.single, body.layouts)


def _is_fit(body: Graph, node: Node) -> bool:
    if not all(is_computed(t) for t in _types(node)) or node.id in body.results:
        return False
    readers = [body[u] for u in body.users[node.id]]
    return isinstance(node.type, TensorType) or all(r.op == "get-tuple-element" for r in readers)


def _chosen(builder: Builder, node: Node, operands: Sequence[int]) -> list[int]:
    """Return the results of a conditional: each branch's loop starts from the results of the loop before it."""
    types = tuple(t for t in _types(node) if isinstance(t, TensorType))
    outside = replace(node, kernel="")
    values = [_zeros(builder, outside, t) for t in types]
    given, last = list(operands[1:]), len(node.graphs) - 1
    for k in range(len(node.graphs)):
        branch = node.graphs[f"branch_{k}"]
        own, given = given[: len(branch.parameters)], given[len(branch.parameters) :]
        here = _is_asked(builder, outside, operands[0], k, last)
        carried = TupleType((_TRUTH, *types, *(branch[p].type for p in branch.parameters)))
        graphs = {"body": _once(branch, types), "condition": _goes_on(branch, carried)}
        loop = builder.derive(node, "while", carried, [here, *values, *own], {LIKELY_TRIPS: 1}, graphs)
        values = [builder.derive(node, "get-tuple-element", t, [loop], {"index": 1 + n}) for n, t in enumerate(types)]
    return values


def _types(node: Node) -> tuple[NodeType, ...]:
    return node.type.elements if isinstance(node.type, TupleType) else (node.type,)


def _zeros(builder: Builder, origin: Node, type_: TensorType) -> int:
    zero = builder.constant(origin, type_.dtype, np.zeros((), ELEMENT_TYPES[type_.dtype].numpy))
    return builder.derive(origin, "broadcast", type_, [zero], {"dimensions": ()}) if type_.dims else zero


def _is_asked(builder: Builder, origin: Node, choice: int, branch: int, last: int) -> int:
    """Return the predicate of whether a conditional selects a branch: an out-of-range index selects the last."""
    if builder[choice].tensor.dtype == "pred":
        return choice if branch else builder.derive(origin, "not", _TRUTH, [choice])

    def is_in(direction: str, number: int) -> int:
        other = builder.constant(origin, "s32", np.asarray(number, np.int32))
        return builder.derive(origin, "compare", _TRUTH, [choice, other], {"direction": direction})

    if branch < last:
        return is_in("EQ", branch)
    return builder.derive(origin, "or", _TRUTH, [is_in("LT", 0), is_in("GE", last)])


def _once(branch: Graph, types: Sequence[TensorType]) -> Graph:
    """Return a branch as the body of a loop that ends after one iteration."""
    branch = fit_body(branch)
    builder = Builder(branch.name)
    for type_ in (_TRUTH, *types):
        builder.parameter(type_)
    ids = {p: builder.parameter(branch[p].type, branch[p].name, branch[p].source) for p in branch.parameters}
    for n in branch.nodes:
        if n.id not in ids:
            ids[n.id] = builder.add(moved(n, -1, tuple(ids[o] for o in n.operands)))
    no = builder.constant(branch[branch.results[0]], "pred", np.zeros((), bool))
    results = [no, *(ids[r] for r in branch.results), *(ids[p] for p in branch.parameters)]
    return builder.finish(results, False, branch.layouts)


def _goes_on(branch: Graph, carried: TupleType) -> Graph:
    builder = Builder(branch.name)
    first, *_ = [builder.parameter(t) for t in carried.elements]
    return builder.finish([first], True, branch.layouts)
