"""Loops of unknown length that carry whether they go on: a step's last work is the test for the next one.

A kernel's threads then leave such a loop by what they all read of one carried truth, whatever it is computed from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jax_stitch.graph.builder import Builder, copied, moved
from jax_stitch.graph.model import Graph, Node, TensorType, TupleType
from jax_stitch.util.values import replace

_TRUTH = TensorType("pred", ())


def with_tests_last(graph: Graph, loop: int) -> Graph:
    """Return the graph with the test of the ``while`` node ``loop`` at the end of each step, and once before the first,
    if nothing says how many steps there are.
    """
    node = graph[loop]
    if "trip_count" in node.attributes or is_tested_last(node):
        return graph

    def instead(builder: Builder, n: Node, ids: Mapping[int, int]) -> int | None:
        return _loop(builder, n, tuple(ids[o] for o in n.operands)) if n.id == loop else None

    return copied(graph, instead)


def is_tested_last(node: Node) -> bool:
    """Return whether a ``while`` goes on by a truth that it carries."""
    test = node.graphs["condition"]
    return test.results[0] in test.parameters


def _loop(builder: Builder, node: Node, operands: Sequence[int]) -> int:
    first = _tested(builder, node.graphs["condition"], operands, made_by_xla=False)
    graphs = {"body": _body(node), "condition": _condition(node)}
    elements = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
    loop = builder.derive(node, "while", TupleType((*elements, _TRUTH)), [*operands, first], node.attributes, graphs)
    if isinstance(node.type, TupleType):
        return loop
    return builder.derive(node, "get-tuple-element", node.type, [loop], {"index": 0})


def _tested(builder: Builder, test: Graph, values: Sequence[int], *, made_by_xla: bool) -> int:
    """Return the test of a loop's carried values, which are in ``builder``."""
    ids = dict(zip(test.parameters, values, strict=True))
    for n in test.nodes:
        if n.id not in ids:
            own = moved(n, -1, tuple(ids[o] for o in n.operands))
            ids[n.id] = builder.add(own if made_by_xla else replace(own, kernel=""))
    return ids[test.results[0]]


def _body(node: Node) -> Graph:
    body = node.graphs["body"]
    builder = Builder(body.name)
    ids = {p: builder.parameter(body[p].type, body[p].name, body[p].source) for p in body.parameters}
    builder.parameter(_TRUTH)
    for n in body.nodes:
        if n.id not in ids:
            ids[n.id] = builder.add(moved(n, -1, tuple(ids[o] for o in n.operands)))
    results = [ids[r] for r in body.results]
    results.append(_tested(builder, node.graphs["condition"], results, made_by_xla=True))
    return builder.finish(results, False, body.layouts)


def _condition(node: Node) -> Graph:
    test = node.graphs["condition"]
    builder = Builder(test.name)
    for p in test.parameters:
        builder.parameter(test[p].type)
    return builder.finish([builder.parameter(_TRUTH)], test.single, test.layouts)
