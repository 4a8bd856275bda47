"""Splitting of one-row products whose readers each slice a part, into products of these parts.

The gates of a recurrent cell are one product, sliced afterwards: each part is read at other places than it is computed,
so a team caches the whole product first, and its readers are another sweep. Computed part by part, a place has its
values of all gates, and the cell is one sweep: nothing is cached between, and helping threads meet half as often.
"""

from __future__ import annotations

from math import prod

from jax_stitch.graph.builder import Builder, copied, moved, with_called
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.util.values import replace

LEAST_PART = 16
"""The least number of places of a part: one vector."""

MOST_PARTS = 8

_SIDES = "lhs", "rhs"


def with_products_of_parts(graph: Graph, loop: int) -> Graph:
    """Return the graph with such products in the body of the ``while`` node ``loop`` computed part by part."""
    body = graph[loop].graphs["body"]
    cut = {
        i for n in body.nodes if n.op == "slice" and (i := n.operands[0]) not in body.result_set and _is_cut(body, i)
    }
    if not cut:
        return graph
    return with_called(graph, graph[loop], "body", _Parts(body, cut).done())


def _is_cut(body: Graph, i: int) -> bool:
    """Return whether a value of one row is computed from products, and all its readers slice it."""
    users = [body[u] for u in body.users[i]]
    if not 1 < len(users) <= MOST_PARTS or any(u.op != "slice" or not _is_part(body, u) for u in users):
        return False
    return _is_made_of_products(body, i)


def _is_part(body: Graph, slice_: Node) -> bool:
    whole = body[slice_.operands[0]].tensor
    if _axis(whole) is None:
        return False
    start, stop, step = slice_.attributes["slice"][_axis(whole)]
    return step == 1 and stop - start >= LEAST_PART


def _is_made_of_products(body: Graph, i: int) -> bool:
    """Return whether a product is among the values computed for this one alone, place by place."""
    node = body[i]
    if node.op == "dot":
        return _free_side(body, node) is not None
    return _is_followed(body, node) and any(
        len(body.users[o]) == 1 and _is_made_of_products(body, o) for o in set(node.operands)
    )


def _is_followed(body: Graph, node: Node) -> bool:
    if not isinstance(node.type, TensorType) or _axis(node.tensor) is None:
        return False
    if node.op == "reshape":
        return _axis(body[node.operands[0]].tensor) is not None
    return node.op in ELEMENTWISE and all(body[o].tensor.dims == node.tensor.dims for o in node.operands)


def _axis(tensor: TensorType) -> int | None:
    """Return the only dimension with several places; None unless the tensor is a single row."""
    axes = [d for d, n in enumerate(tensor.dims) if n > 1]
    return axes[0] if len(axes) == 1 else None


def _free_side(body: Graph, dot: Node) -> tuple[int, int] | None:
    """Return the operand whose free dimension is the axis of a one-row product, and that dimension; None otherwise."""
    if dot.attributes.get("lhs_batch_dims") or _axis(dot.tensor) is None:
        return None
    for side, name in enumerate(_SIDES):
        dims = body[dot.operands[side]].tensor.dims
        free = [d for d in range(len(dims)) if d not in dot.attributes.get(f"{name}_contracting_dims", ())]
        along = [d for d in free if dims[d] > 1]
        if len(along) == 1 and dims[along[0]] == prod(dot.tensor.dims):
            return side, along[0]
    return None


class _Parts:
    """The rewrite of a body: slices of some values are replaced by separately computed parts."""

    def __init__(self, body: Graph, cut: set[int]):
        self._body, self._cut = body, cut
        self._made: dict[tuple[int, int, int], int] = {}
        self._ids: dict[int, int] = {}

    def done(self) -> Graph:
        return copied(self._body, self._instead)

    def _instead(self, builder: Builder, n: Node, ids: dict[int, int]) -> int | None:
        if n.op != "slice" or n.operands[0] not in self._cut:
            return None
        self._ids = ids
        axis = _axis(self._body[n.operands[0]].tensor)
        assert axis is not None
        start, stop, _ = n.attributes["slice"][axis]
        return self._part(builder, n.operands[0], start, stop)

    def _part(self, builder: Builder, i: int, start: int, stop: int) -> int:
        key = i, start, stop
        if key not in self._made:
            self._made[key] = self._new_part(builder, self._body[i], start, stop)
        return self._made[key]

    def _new_part(self, builder: Builder, node: Node, start: int, stop: int) -> int:
        axis = _axis(node.tensor)
        assert axis is not None
        type_ = _cut(node.tensor, axis, stop - start)
        if node.id in self._cut or len(self._body.users[node.id]) == 1:
            if node.op == "dot" and (free := _free_side(self._body, node)) is not None:
                side, along = free
                operands = [self._ids[o] for o in node.operands]
                operands[side] = _slice(builder, node, operands[side], along, start, stop)
                return builder.add(replace(moved(node, -1, tuple(operands)), type=type_))
            if _is_followed(self._body, node):
                parts = tuple(self._part(builder, o, start, stop) for o in node.operands)
                return builder.add(replace(moved(node, -1, parts), type=type_))
        return _slice(builder, node, self._ids[node.id], axis, start, stop)


def _cut(tensor: TensorType, axis: int, size: int) -> TensorType:
    return TensorType(tensor.dtype, tuple(size if d == axis else n for d, n in enumerate(tensor.dims)))


def _slice(builder: Builder, origin: Node, i: int, axis: int, start: int, stop: int) -> int:
    tensor = builder[i].tensor
    taken = tuple((start, stop, 1) if d == axis else (0, n, 1) for d, n in enumerate(tensor.dims))
    return builder.derive(origin, "slice", _cut(tensor, axis, stop - start), [i], {"slice": taken})
