"""Products that read an operand as it lies, in place of one that a kernel has transposed for them.

XLA writes the operands of batched products in one order of dimensions, and turns what comes in another: the keys of
attention, [batch, length, heads, features], become [batch, heads, features, length], whose neighbours in memory lie far
apart in what is read. A product takes its last two dimensions in either order, and so here it gets them in the one in
which reads and writes are along memory. A kernel that packs the move with other work is then as fast as the move alone.
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType
from typing import Any

from jax_stitch.analysis.support import is_rematerializable, is_view
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.util.values import replace

_SIDES = ("lhs", "rhs")


def upright(graph: Graph) -> Graph:
    """Return the graph with the last two dimensions of such operands exchanged, and the products' numbers of them with
    it.
    """
    transposed = {n.id: sides for n in graph.nodes if n.op == "dot" and (sides := _transposed(graph, n))}
    if not transposed:
        return graph
    wanted = {graph[i].operands[side] for i, sides in transposed.items() for side in sides}
    gone = {i for w in wanted for i in _views(graph, w)}
    back = {u for w in wanted for u in graph.users[w] if _turns_back(graph, graph[u])}
    nodes: list[Node] = []
    ids: dict[int, int] = {}
    made: dict[int, int] = {}
    """The exchanged values, by the operands."""

    def add(node: Node, operands: tuple[int, ...], **changes: Any) -> int:
        nodes.append(replace(node, id=len(nodes), operands=operands, **changes))
        return len(nodes) - 1

    def exchanged(i: int) -> int:
        if i not in made:
            views = _views(graph, i)
            source = graph[views[-1]].operands[0] if views else i
            kernel, here = graph[source].kernel, ids[source]
            for v in reversed(views):
                here = add(graph[v], (here,), kernel=kernel)
            dims = graph[i].tensor.dims
            order = _exchange(len(dims))
            type_ = TensorType(graph[i].tensor.dtype, tuple(dims[d] for d in order))
            changes: dict[str, Any] = {"attributes": MappingProxyType({"dimensions": order}), "literal": None}
            changes |= {"op": "transpose", "type": type_, "kernel": kernel, "graphs": MappingProxyType({})}
            made[i] = add(graph[source], (here,), **changes)
        return made[i]

    for node in graph.nodes:
        if node.id in gone:
            continue
        if node.id in back:
            ids[node.id] = exchanged(node.operands[0])
            continue
        sides = transposed.get(node.id, ())
        operands = tuple(exchanged(o) if k in sides else ids[o] for k, o in enumerate(node.operands))
        attributes = MappingProxyType({**node.attributes, **_numbers(graph, node, sides)}) if sides else node.attributes
        ids[node.id] = add(node, operands, attributes=attributes)
    parameters, results = tuple(ids[p] for p in graph.parameters), tuple(ids[r] for r in graph.results)
    return replace(graph, nodes=tuple(nodes), parameters=parameters, results=results)


def _numbers(graph: Graph, dot: Node, sides: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the dimension numbers of a product whose operands on these sides have their last two dimensions
    exchanged.
    """
    numbers = {}
    for side in sides:
        last = len(graph[dot.operands[side]].tensor.dims) - 1
        new = {last: last - 1, last - 1: last}
        for kind in ("contracting", "batch"):
            name = f"{_SIDES[side]}_{kind}_dims"
            numbers[name] = tuple(new.get(d, d) for d in dot.attributes.get(name, ()))
    return numbers


def _transposed(graph: Graph, dot: Node) -> tuple[int, ...]:
    """Return the sides of a product whose operand a kernel has transposed for products alone."""
    return tuple(
        side
        for side, o in enumerate(dot.operands)
        if len(graph[o].tensor.dims) > 1 and may_exchange(graph, dot, side) and _is_transposed(graph, o)
    )


def may_exchange(graph: Graph, dot: Node, side: int) -> bool:
    """Return whether the result stays what it is: of the last two dimensions at most one is among the result's by
    itself.
    """
    last = len(graph[dot.operands[side]].tensor.dims) - 1
    kinds = [dot.attributes.get(f"{_SIDES[side]}_{kind}_dims", ()) for kind in ("contracting", "batch")]
    return any(last in dims or last - 1 in dims for dims in kinds)


def _is_transposed(graph: Graph, i: int) -> bool:
    """Return whether a value is written in another order than what it is made of lies in memory (strided reads), and
    would not be with its last two dimensions exchanged; by a kernel of its own, for products that all may exchange
    them.
    """
    views = _views(graph, i)
    source = graph[graph[views[-1]].operands[0] if views else i]
    if not source.kernel or source.id in graph.result_set or set(views) & graph.result_set:
        return False
    shapes = [graph[v] for v in (*views, source.id)]
    for k, value in enumerate(shapes):
        for u in graph.users[value.id]:
            is_next = k > 0 and u == shapes[k - 1].id
            if not is_next and (k > 0 or graph[u].kernel == source.kernel):
                return False
    for u in graph.users[i]:
        if _turns_back(graph, graph[u]):
            continue
        sides = [side for side, o in enumerate(graph[u].operands) if o == i]
        if graph[u].op != "dot" or not all(may_exchange(graph, graph[u], side) for side in sides):
            return False
    last = len(graph[i].tensor.dims) - 1
    return _is_along_memory(graph, i, last) is False and _is_along_memory(graph, i, last - 1) is True


def _exchange(rank: int) -> tuple[int, ...]:
    """Return all dimensions in order, but the last two exchanged."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _turns_back(graph: Graph, node: Node) -> bool:
    """Return whether a node exchanges the last two dimensions for products alone, inside their kernels."""
    if node.op != "transpose" or node.attributes["dimensions"] != _exchange(len(node.tensor.dims)):
        return False
    return all(graph[u].op == "dot" and graph[u].kernel == node.kernel for u in graph.users[node.id])


def _views(graph: Graph, i: int) -> list[int]:
    """Return the views that a value is of another, the last one first."""
    views = []
    while is_view(graph[i]):
        views.append(i)
        i = graph[i].operands[0]
    return views


def _is_along_memory(graph: Graph, i: int, dimension: int) -> bool | None:
    """Return whether the places along a dimension of a value are neighbours in memory in what it is computed from;
    ``None`` where that does not show.
    """
    origin = origin_of(graph, i, dimension)
    if origin is None:
        return None
    source, along = origin
    return prod(graph[source].tensor.dims[along + 1 :]) == 1


def origin_of(graph: Graph, i: int, dimension: int, sums: bool = False) -> tuple[int, int] | None:
    """Return the value in memory that a value is computed from place by place, and its dimension along which the places
    lie that are neighbours along this one; ``None`` where that does not show. With ``sums`` a reduction is looked
    through.
    """
    while True:
        node = graph[i]
        dims = node.tensor.dims
        if dims[dimension] < 2:
            return None
        if node.op == "transpose":
            dimension, i = node.attributes["dimensions"][dimension], node.operands[0]
        elif node.op == "slice":
            i = node.operands[0]
        elif node.op == "reshape":
            # The place in the operand's dimensions where a step along this one begins.
            step, source = prod(dims[dimension + 1 :]), graph[node.operands[0]].tensor.dims
            places = [d for d in range(len(source)) if source[d] > 1 and prod(source[d + 1 :]) == step]
            if not places:
                return None
            dimension, i = places[0], node.operands[0]
        elif sums and node.op == "reduce" and len(node.operands) == 2:
            gone = node.attributes["dimensions"]
            remaining = [d for d in range(len(graph[node.operands[0]].tensor.dims)) if d not in gone]
            dimension, i = remaining[dimension], node.operands[0]
        elif node.op in ELEMENTWISE:
            read = [
                o
                for o in node.operands
                if graph[o].op not in ("broadcast", "constant") and not is_rematerializable(graph[o])
            ]
            if not read:
                return None
            i = read[0]
        else:
            return i, dimension
