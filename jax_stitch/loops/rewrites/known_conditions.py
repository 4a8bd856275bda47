"""Fold conditions that the ranges of counters and iotas decide (range analysis, as of LLVM's correlated values).

``buffer.at[i].set(row)`` in a loop reaches XLA with a test of whether ``i`` is negative and one of whether the row lies
in the buffer. Where ``i`` counts the steps, both are known, and the write need not look at what was there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from jax_stitch.analysis.maps import STEP, known_choice, value_of
from jax_stitch.graph.builder import Builder, freeze, moved
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.rewrites.fold import fold
from jax_stitch.graph.rewrites.simplify import simplify_movement, simplify_select
from jax_stitch.ir.indices import Expr, var
from jax_stitch.loops.carried import counter_of
from jax_stitch.util.values import replace

_CONDITIONS = frozenset({"compare", "and", "or", "not", "reduce"})


def with_known_conditions(graph: Graph) -> Graph:
    """Return the graph with each condition that is known a constant, in its loops and branches too."""
    return _folded(graph, graph)


def _folded(graph: Graph, ranged: Graph) -> Graph:
    """Return a graph folded. ``ranged`` has the same nodes, but for parameters that count or have a range."""
    known = dict(_known(ranged))
    inner: dict[int, Mapping[str, Graph]] = {}
    for node in ranged.nodes:
        if node.op in ("while", "conditional"):
            called = {k: _folded(g, _ranged(ranged, node, k)) for k, g in node.graphs.items()}
            if any(g is not node.graphs[k] for k, g in called.items()):
                inner[node.id] = freeze(called)
    if not known and not inner:
        return graph
    builder = Builder(graph.name, (simplify_select, simplify_movement, fold))
    ids = {i: builder.take_parameter(graph[i]) for i in graph.parameters}
    for node in graph.nodes:
        if node.id in known:
            value = builder.constant(node, "pred", np.array(known[node.id]))
            ids[node.id] = builder.derive(node, "broadcast", node.type, [value], {"dimensions": ()})
        elif node.id not in ids:
            operands = tuple(ids[o] for o in node.operands)
            ids[node.id] = builder.add(moved(node, -1, operands, inner.get(node.id, node.graphs)))
    return builder.finish([ids[r] for r in graph.results], graph.single, graph.layouts)


def _known(ranged: Graph) -> Iterator[tuple[int, bool]]:
    for node in ranged.nodes:
        if node.op in _CONDITIONS and isinstance(node.type, TensorType) and node.type.dtype == "pred":
            index = tuple(var(f"d{d}", n) for d, n in enumerate(node.type.dims))
            if node.type.size and (choice := known_choice(ranged, node, index)) is not None:
                yield node.id, choice


def _ranged(graph: Graph, node: Node, key: str) -> Graph:
    """Return what a loop or a conditional calls with those parameters in closed form that count its steps, or that are
    whole numbers of a known range and stay as they are.
    """
    called = node.graphs[key]
    nodes = list(called.nodes)
    for k, parameter in enumerate(called.parameters):
        attributes = _counts(graph, node, k) if key == "body" else None
        if attributes is None and (operand := _argument(node, key, k)) is not None:
            attributes = _range(value_of(graph, graph[operand], ())) if not _dims(called[parameter]) else None
        if attributes is not None:
            named = MappingProxyType({"name": f"parameter{k}", **attributes})
            nodes[parameter] = replace(called[parameter], op=STEP, attributes=named)
    return replace(called, nodes=tuple(nodes))


def _counts(graph: Graph, node: Node, k: int) -> Mapping[str, Any] | None:
    trips = node.attributes.get("trip_count")
    counts = counter_of(graph, node, k) if trips else None
    return None if counts is None else {"start": counts[0], "by": counts[1], "trips": trips, "name": "step"}


def _range(value: Expr | None) -> Mapping[str, Any] | None:
    return None if value is None else {"start": value.low, "by": 1, "trips": value.high - value.low + 1}


def _dims(node: Node) -> bool:
    """Return whether a node is no scalar."""
    return not isinstance(node.type, TensorType) or bool(node.type.dims)


def _argument(node: Node, key: str, k: int) -> int | None:
    """Return what outside parameter ``k`` of a called graph is, if it is that throughout."""
    if node.op == "while":
        body = node.graphs["body"]
        return node.operands[k] if body.results[k] == body.parameters[k] else None
    before = 1  # The first operand selects the branch.
    for name, branch in node.graphs.items():
        if name == key:
            return node.operands[before + k]
        before += len(branch.parameters)
    return None
