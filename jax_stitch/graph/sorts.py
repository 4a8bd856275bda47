"""``sort``: arrays put in order together along one dimension, by a comparator of their elements."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from .model import Graph, Node, TensorType, TupleType


class Sort(Struct, frozen=True):
    """``size`` places along ``dimension``; ``stable`` where equal elements keep their order."""

    dimension: int
    size: int
    stable: bool


def sort_of(graph: Graph, node: Node) -> Sort | None:
    """Return the sort that a node is, or ``None``."""
    if node.op != "sort":
        return None
    (dimension,) = node.attributes["dimensions"]
    size = graph[node.operands[0]].tensor.dims[dimension]
    return Sort(dimension, size, bool(node.attributes.get("is_stable", False)))


def fields_of(node: Node) -> tuple[int, ...]:
    """Return the different operands of a sort, in order: one that occurs twice is moved once."""
    return tuple(dict.fromkeys(node.operands))


def results_of(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the nodes that are the results of a sort: itself, or what takes it apart, by operand (-1 where none is
    used).
    """
    if not isinstance(node.type, TupleType):
        return (node.id,)
    results = [-1] * len(node.operands)
    for u in graph.users[node.id]:
        results[graph[u].attributes["index"]] = u
    return tuple(results)


def places_read(graph: Graph, node: Node, outputs: Collection[int]) -> int:
    """Return how many places, from the first on, are all that is read of a sort's results: what is sliced off (top-k);
    all where a result is among the ``outputs`` of its kernel, which are what the operation says, whoever reads them.
    """
    sort = sort_of(graph, node)
    assert sort is not None
    most = 1
    for result in results_of(graph, node):
        if result in graph.result_set or result in outputs:
            return sort.size
        for u in graph.users[result] if result >= 0 else ():
            user = graph[u]
            if user.op != "slice" or not isinstance(user.type, TensorType):
                return sort.size
            most = max(most, user.attributes["slice"][sort.dimension][1])
    return most
