"""Weights that a loop multiplies by, transposed before it where neighbours of a product read its columns.

The gradient of ``h @ w`` is ``dh @ w^T``: what is summed up lies next to each other in both operands, so that a vector
of results gathers what it multiplies. Transposed once, before the loop, it reads neighbours in each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

from jax_stitch.graph.builder import Builder, copied, moved
from jax_stitch.graph.model import Graph, Node, TensorType, TupleType
from jax_stitch.util.values import replace

LEAST_LANES, LEAST_TRIPS = 8, 4
"""Columns of what is transposed, and steps that read it."""

_SIDES = "lhs", "rhs"


def with_transposed_weights(graph: Graph, loop: int) -> Graph:
    """Return the graph with the arrays transposed that the ``while`` node ``loop`` only multiplies by, along their
    rows.
    """
    node = graph[loop]
    if (node.attributes.get("trip_count") or 0) < LEAST_TRIPS:
        return graph
    numbers = [k for k in range(len(node.operands)) if _is_along_rows(node, k)]
    if not numbers:
        return graph

    def instead(builder: Builder, n: Node, ids: Mapping[int, int]) -> int | None:
        return _loop(builder, n, tuple(ids[o] for o in n.operands), numbers) if n.id == loop else None

    return copied(graph, instead)


def _is_along_rows(loop: Node, number: int) -> bool:
    """Return whether a matrix that a loop carries unchanged is read only by products that sum along its rows."""
    body, condition = loop.graphs["body"], loop.graphs["condition"]
    parameter = body.parameters[number]
    if body.results[number] != parameter or condition.users[condition.parameters[number]]:
        return False
    if not isinstance(body[parameter].type, TensorType) or len(body[parameter].tensor.dims) != 2:
        return False
    users = [body[u] for u in body.users[parameter]]
    return bool(users) and all(_sums_along_rows(body, u, parameter) for u in users)


def _sums_along_rows(body: Graph, dot: Node, matrix: int) -> bool:
    if dot.op != "dot" or dot.attributes.get("lhs_batch_dims") or dot.operands.count(matrix) != 1:
        return False
    side = dot.operands.index(matrix)
    other = body[dot.operands[1 - side]].tensor
    sums = [tuple(dot.attributes.get(f"{name}_contracting_dims", ())) for name in _SIDES]
    # What else is summed along its rows: where it is not, its own columns can be the neighbours.
    is_last = len(sums[1 - side]) == 1 and prod(other.dims[sums[1 - side][0] + 1 :]) == 1
    return sums[side] == (1,) and is_last and _columns(body, matrix) >= LEAST_LANES


def _columns(body: Graph, matrix: int) -> int:
    return body[matrix].tensor.dims[0]


def _loop(builder: Builder, node: Node, operands: tuple[int, ...], numbers: list[int]) -> int:
    """Return the loop with the transposed arrays after all that it carries."""
    assert isinstance(node.type, TupleType)
    transposed = {k: _transposed_type(node.graphs["body"], k) for k in numbers}
    plain = replace(node, kernel="")
    made = [builder.derive(plain, "transpose", t, [operands[k]], {"dimensions": (1, 0)}) for k, t in transposed.items()]
    graphs = {name: _called(node.graphs[name], transposed, name == "body") for name in ("body", "condition")}
    type_ = TupleType((*node.type.elements, *transposed.values()))
    return builder.derive(node, "while", type_, [*operands, *made], node.attributes, graphs)


def _transposed_type(body: Graph, number: int) -> TensorType:
    t = body[body.parameters[number]].tensor
    return TensorType(t.dtype, t.dims[::-1])


def _called(old: Graph, transposed: Mapping[int, TensorType], is_body: bool) -> Graph:
    """Return the body or condition with parameters for the transposed arrays, which products read in their stead."""
    builder = Builder(old.name)
    ids = {p: builder.parameter(old[p].type, old[p].name, old[p].source) for p in old.parameters}
    instead = {old.parameters[k]: builder.parameter(t) for k, t in transposed.items()}
    for n in old.nodes:
        if n.id not in ids:
            read = [o for o in n.operands if o in instead and n.op == "dot"]
            operands = tuple(instead[o] if o in read else ids[o] for o in n.operands)
            ids[n.id] = builder.add(replace(moved(n, -1, operands), attributes=_attributes(n, read)))
    results = [ids[r] for r in old.results] + (list(instead.values()) if is_body else [])
    return builder.finish(results, old.single, old.layouts)


def _attributes(n: Node, read: list[int]) -> Mapping[str, object]:
    sides = {f"{_SIDES[n.operands.index(o)]}_contracting_dims": (0,) for o in read}
    return MappingProxyType({**n.attributes, **sides}) if sides else n.attributes
