"""Graphs under construction: equal nodes are built once (hash-consing), and unused nodes are dropped at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from jax_stitch.util.values import replace

from .model import Graph, GraphLayouts, Node, NodeType, TensorType
from .opcodes import has_effect

Rule = Callable[["Builder", Node], int | None]
"""A rewrite of a node about to be added (its operands are in the builder already; its id means nothing). Returns the
id of the node to use instead, or None to leave it."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Builder:
    """A collection of the nodes of one graph, which applies ``rules`` to each as it is added."""

    def __init__(self, name: str, rules: Sequence[Rule] = ()) -> None:
        self.name = name
        self.rules = tuple(rules)
        self.nodes: list[Node] = []
        self.parameters: list[int] = []
        self._known: dict[Any, int] = {}

    def __getitem__(self, i: int) -> Node:
        return self.nodes[i]

    def parameter(self, type_: NodeType, name: str = "", source: str = "") -> int:
        """Append a new parameter, and return its id."""
        node = Node(len(self.nodes), "parameter", type_, (), name=name, source=source)
        self.nodes.append(node)
        self.parameters.append(node.id)
        return node.id

    def take_parameter(self, node: Node) -> int:
        """Append a parameter of another graph as a new one, and return its id."""
        if node.id != len(self.nodes) or node.attributes or node.kernel or node.scope:
            return self.parameter(node.type, node.name, node.source)
        self.nodes.append(node)
        self.parameters.append(node.id)
        return node.id

    def add(self, node: Node) -> int:
        """Add a node (``node.id`` means nothing), and return the id of the node that stands for it."""
        for rule in self.rules:
            if (instead := rule(self, node)) is not None:
                return instead
        key = None if has_effect(node) else node_key(node)
        if key is not None and key in self._known:
            self._of_nobody(self._known[key], node)
            return self._known[key]
        if node.id != len(self.nodes):
            node = moved(node, len(self.nodes), node.operands)
        self.nodes.append(node)
        if key is not None:
            self._known[key] = node.id
        return node.id

    def _of_nobody(self, known: int, node: Node) -> None:
        """Clear the kernel of a reshape that several kernels make of a value in memory: it is a view, owned by none."""
        mine = self.nodes[known]
        if node.op != "reshape" or mine.kernel in ("", node.kernel):
            return
        if self.nodes[node.operands[0]].kernel not in (mine.kernel, node.kernel):
            self.nodes[known] = replace(mine, kernel="")

    def derive(
        self,
        origin: Node,
        op: str,
        type_: NodeType,
        operands: Sequence[int],
        attributes: Mapping[str, Any] = _NOTHING,
        graphs: Mapping[str, Graph] = _NOTHING,
    ) -> int:
        """Add an operation that replaces part of ``origin``: it inherits name, kernel, source and scope."""
        inherited = origin.name, origin.kernel, origin.source, origin.scope
        return self.add(Node(-1, op, type_, tuple(operands), freeze(attributes), freeze(graphs), None, *inherited))

    def reduce(
        self,
        origin: Node,
        by: str,
        operands: Sequence[int],
        dimensions: Sequence[int],
        attributes: Mapping[str, Any] = _NOTHING,
    ) -> int:
        """Add a reduction of a value along some dimensions by one operation; ``operands`` are the value and what it
        starts from.
        """
        type_ = self[operands[0]].tensor
        pair, scalar = Builder(f"{by}_of_two"), TensorType(type_.dtype, ())
        combined = pair.derive(origin, by, scalar, [pair.parameter(scalar), pair.parameter(scalar)])
        combiner = pair.finish([combined], True, GraphLayouts())
        made = TensorType(type_.dtype, tuple(n for d, n in enumerate(type_.dims) if d not in dimensions))
        reducing = {"dimensions": tuple(dimensions), **attributes}
        return self.derive(origin, "reduce", made, operands, reducing, {"to_apply": combiner})

    def constant(self, origin: Node, dtype: str, value: np.ndarray) -> int:
        """Add a constant in place of ``origin``. ``value`` is copied and frozen."""
        literal = np.array(value)
        literal.setflags(write=False)
        type_ = TensorType(dtype, literal.shape)
        return self.add(Node(-1, "constant", type_, (), literal=literal, name=origin.name, source=origin.source))

    def mark(self, number: int, attributes: Mapping[str, Any]) -> None:
        """Add attributes to a node that is there, and that means the same with them."""
        if attributes:
            node = self.nodes[number]
            self.nodes[number] = replace(node, attributes=freeze({**node.attributes, **attributes}))

    def inline(self, graph: Graph, arguments: Sequence[int]) -> list[int]:
        """Copy a graph's nodes into this one with its parameters replaced, and return the ids of its results."""
        mapped = dict(zip(graph.parameters, arguments, strict=True))
        for node in graph.nodes:
            if node.id not in mapped:
                mapped[node.id] = self.add(moved(node, -1, tuple(mapped[o] for o in node.operands)))
        return [mapped[r] for r in graph.results]

    def finish(self, results: Sequence[int], single: bool, layouts: GraphLayouts) -> Graph:
        """Return the graph of the parameters and all nodes that the results and effects need, renumbered."""
        alive = [False] * len(self.nodes)
        waiting = [*results, *self.parameters, *(n.id for n in self.nodes if has_effect(n))]
        while waiting:
            i = waiting.pop()
            if not alive[i]:
                alive[i] = True
                waiting += self.nodes[i].operands
        number: dict[int, int] = {}
        nodes: list[Node] = []
        for node in self.nodes:
            if alive[node.id]:
                number[node.id] = len(nodes)
                if node.id != len(nodes):  # Nodes before the first dropped one keep their ids.
                    node = moved(node, len(nodes), tuple(number[o] for o in node.operands))
                nodes.append(node)
        parameters, new_results = tuple(number[p] for p in self.parameters), tuple(number[r] for r in results)
        return Graph(self.name, tuple(nodes), parameters, new_results, single, layouts)


def copied(
    graph: Graph, instead: Callable[[Builder, Node, dict[int, int]], int | None], rules: Sequence[Rule] = ()
) -> Graph:
    """Return the graph with each node replaced by what ``instead(builder, node, ids)`` adds, or kept where that returns
    None. ``rules`` are applied to each node that is added.

    ``ids`` maps each earlier node to its new id. Where ``instead`` changes an entry, later nodes read the new one.
    """
    builder = Builder(graph.name, rules)
    ids = {p: builder.parameter(graph[p].type, graph[p].name, graph[p].source) for p in graph.parameters}
    for node in graph.nodes:
        if node.id not in ids:
            made = instead(builder, node, ids)
            if made is None:
                made = builder.add(moved(node, -1, tuple(ids[o] for o in node.operands)))
            ids[node.id] = made
    return builder.finish([ids[r] for r in graph.results], graph.single, graph.layouts)


def with_called(graph: Graph, node: Node, name: str, called: Graph) -> Graph:
    """Return the graph with another graph of the same parameters and results called by one of its nodes."""
    if called is node.graphs[name]:
        return graph
    changed = moved(node, node.id, node.operands, freeze({**node.graphs, name: called}))
    return replace(graph, nodes=(*graph.nodes[: node.id], changed, *graph.nodes[node.id + 1 :]))


def moved(node: Node, id_: int, operands: tuple[int, ...], graphs: Mapping[str, Graph] | None = None) -> Node:
    """Return the same operation with another id and other operands. (``replace`` takes longer.)"""
    called = node.graphs if graphs is None else graphs
    at = node.name, node.kernel, node.source, node.scope
    return Node(id_, node.op, node.type, operands, node.attributes, called, node.literal, *at)


def freeze(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a read-only copy."""
    return MappingProxyType(dict(mapping))


def node_key(node: Node) -> Any:
    """Return a key that is equal for nodes that compute the same."""
    return (
        node.op,
        node.type,
        node.operands,
        frozenset((k, _hashable(v)) for k, v in node.attributes.items()) if node.attributes else None,
        tuple((k, graph_key(node.graphs[k])) for k in sorted(node.graphs)) if node.graphs else (),
        None if node.literal is None else node.literal.tobytes(),
    )


def graph_key(graph: Graph) -> Any:
    """Return a key that is equal for graphs that compute the same."""
    return tuple(map(node_key, graph.nodes)), graph.parameters, graph.results, graph.single


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value), value
