"""Expansion of reductions over a few elements, like the coordinates of points, into operations on one element each.

XLA:CPU reduces them one result at a time. Element by element they are computed for a vector of results, and fuse with
whatever reads them: distances of pairs of points are never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_parser import ELEMENT_TYPES
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import as_calls
from jax_stitch.fusion.pays import SHARED_BYTES
from jax_stitch.graph.builder import Builder, copied, freeze
from jax_stitch.graph.combiners import combines_by
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.rewrites.simplify import simplify_movement
from jax_stitch.ir.operations import ELEMENTWISE

MOST_TERMS = 16
"""The most elements of a reduction that is expanded."""

LEAST_RESULTS = 64
"""The fewest results of one: fewer are no vectors."""

MOST_NODES = 600
"""The most nodes by which a graph may grow: planning time grows with them."""

RESULT_SECONDS = 6e-9
"""Seconds of a core for each result of XLA:CPU's reductions of a few elements. Measured: 6 to 17 ns."""


_READ = ELEMENTWISE | {"parameter", "get-tuple-element", "reshape", "transpose"}
"""Operations whose results are computed, or read, one element at a time."""


def short_reductions(graph: Graph, device: Device) -> Graph:
    """Return the graph with its short reductions expanded. Called computations stay as they are."""
    chosen, left = set[int](), MOST_NODES
    for node in graph.nodes:
        made_of = _made_of(graph, node) if _is_short(graph, node) else None
        if made_of:
            left -= graph[node.operands[0]].tensor.dims[node.attributes["dimensions"][0]] * len(made_of)
            chosen |= {node.id} if left >= 0 else set()
    if not chosen:
        return graph

    def instead(builder: Builder, node: Node, ids: dict[int, int]) -> int | None:
        return _expanded(builder, node, [ids[o] for o in node.operands], device) if node.id in chosen else None

    return copied(graph, instead, (simplify_movement,))


def _is_short(graph: Graph, node: Node) -> bool:
    if node.op != "reduce" or len(node.operands) != 2 or len(node.attributes["dimensions"]) != 1:
        return False
    reduced = graph[node.operands[0]]
    if reduced.tensor.dtype in ("bf16", "f16"):
        return False  # Their sums are made in a wider type.
    few = 1 < reduced.tensor.dims[node.attributes["dimensions"][0]] <= MOST_TERMS
    many = node.tensor.size >= LEAST_RESULTS and reduced.op in _READ
    return few and many and combines_by(node.graphs["to_apply"], 0) in ("add", "maximum", "minimum", "multiply")


def _made_of(graph: Graph, node: Node) -> set[int]:
    """Return what a node reduces and the operations that compute an element of it; none if anything else reads their
    results, as in a softmax: they would be computed again for it.
    """
    reduced = node.operands[0]
    found, waiting = {reduced}, [reduced]
    while waiting:
        one = graph[waiting.pop()]
        more = {o for o in one.operands if one.op in ELEMENTWISE and graph[o].op in ELEMENTWISE} - found
        found |= more
        waiting += more
    read = {u for i in found for u in graph.users[i]} - found
    return set() if read != {node.id} or any(i in graph.result_set for i in found) else found


def _expanded(builder: Builder, node: Node, operands: Sequence[int], device: Device) -> int:
    reduced, start = operands
    (dim,) = node.attributes["dimensions"]
    terms, made = _Terms(builder, node), node.tensor
    by = combines_by(node.graphs["to_apply"], 0)
    assert by is not None
    total = builder.derive(node, "broadcast", made, [start], {"dimensions": ()})
    for k in range(builder[reduced].tensor.dims[dim]):
        total = builder.derive(node, by, made, [total, terms.at(reduced, dim, k)])
    cores = device.multiprocessors if node_bytes(builder[reduced]) >= SHARED_BYTES else 1
    last, calls = builder[total], as_calls(made.size * RESULT_SECONDS / cores, device)
    return builder.derive(node, last.op, made, last.operands, {**last.attributes, **calls})


class _Terms:
    """Values at one place of a dimension, which they do not have any more."""

    def __init__(self, builder: Builder, origin: Node):
        self._builder, self._origin = builder, origin
        self._made: dict[tuple[int, int, int], int] = {}

    def at(self, i: int, dim: int, place: int) -> int:
        """Return a value at a place of a dimension."""
        key = i, dim, place
        if key not in self._made:
            self._made[key] = self._at(self._builder[i], dim, place)
        return self._made[key]

    def _at(self, node: Node, dim: int, place: int) -> int:
        dims = node.tensor.dims
        made = TensorType(node.tensor.dtype, (*dims[:dim], *dims[dim + 1 :]))
        if node.op in ELEMENTWISE:
            operands = [self.at(o, dim, place) if self._builder[o].tensor.dims else o for o in node.operands]
            return self._builder.derive(node, node.op, made, operands, node.attributes)
        if node.op == "broadcast":
            (source,), places = node.operands, node.attributes["dimensions"]
            if dim in places:
                source = self.at(source, places.index(dim), place)
            kept = tuple(d - (d > dim) for d in places if d != dim)
            return self._derive("broadcast", made, source, dimensions=kept)
        if node.op == "iota":
            if node.attributes["iota_dimension"] != dim:
                counted = node.attributes["iota_dimension"]
                return self._builder.derive(node, "iota", made, (), {"iota_dimension": counted - (counted > dim)})
            value = np.asarray(place).astype(ELEMENT_TYPES[made.dtype].numpy)
            number = self._builder.constant(node, made.dtype, value)
            return self._derive("broadcast", made, number, dimensions=())
        bounds = tuple((place, place + 1, 1) if d == dim else (0, n, 1) for d, n in enumerate(dims))
        one = TensorType(made.dtype, tuple(1 if d == dim else n for d, n in enumerate(dims)))
        return self._derive("reshape", made, self._derive("slice", one, node.id, slice=bounds))

    def _derive(self, op: str, type_: TensorType, operand: int, **attributes: Any) -> int:
        return self._builder.derive(self._origin, op, type_, [operand], freeze(attributes))
