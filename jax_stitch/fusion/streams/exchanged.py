"""Sums over an axis of a product times weights, as that of another product: ``sum_k w[q, k] (a b^T)[q, k]`` is
``sum_e a[q, e] (w b)[q, e]``.

The gradient of a softmax needs such sums. The product ``w b`` is often there already, as what attention returns; it
runs in one sweep with the softmax, where ``a`` is not known yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from jax_stitch.graph.builder import Builder, copied
from jax_stitch.graph.combiners import combines_by, is_neutral
from jax_stitch.graph.model import Graph, Node, TensorType


def exchanged(graph: Graph) -> Graph:
    """Return the graph with these sums exchanged, the same one where there are none."""
    found = {n.id: parts for n in graph.nodes if (parts := _parts(graph, n)) is not None}
    if not found:
        return graph

    def instead(builder: Builder, node: Node, ids: dict[int, int]) -> int | None:
        if node.id not in found:
            return None
        dot, weights = found[node.id]
        return _sum(builder, graph, node, dot, weights, ids)

    return copied(graph, instead)


def _parts(graph: Graph, node: Node) -> tuple[Node, Sequence[int]] | None:
    """Return the product and the weights of a sum; None where it is no such sum."""
    if node.op != "reduce" or len(node.operands) != 2 or len(node.attributes["dimensions"]) != 1:
        return None
    combiner = node.graphs["to_apply"]
    if combines_by(combiner, 0) != "add" or not is_neutral(combiner, graph[node.operands[1]]):
        return None
    factors, waiting = list[int](), [node.operands[0]]
    while waiting:
        factor = graph[waiting.pop()]
        if factor.op == "multiply":
            waiting += factor.operands
        else:
            factors.append(factor.id)
    dots = [i for i in factors if graph[i].op == "dot"]
    if len(dots) != 1 or len(factors) < 2:
        return None
    dot = graph[dots[0]]
    batch = len(dot.attributes.get("lhs_batch_dims", ()))
    free = [_free(graph, dot, side) for side in (0, 1)]
    one = len(free[0]) == len(free[1]) == 1 and len(dot.attributes["lhs_contracting_dims"]) == 1
    (summed,) = node.attributes["dimensions"]
    if not one or summed < batch or node.tensor.dtype not in ("f32", "f64"):
        return None
    types = {graph[o].tensor.dtype for o in (*dot.operands, *factors)}
    return (dot, [i for i in factors if i != dot.id]) if types == {node.tensor.dtype} else None


def _free(graph: Graph, dot: Node, side: int) -> list[int]:
    name = ("lhs", "rhs")[side]
    gone = (*dot.attributes.get(f"{name}_batch_dims", ()), *dot.attributes[f"{name}_contracting_dims"])
    return [d for d in range(len(graph[dot.operands[side]].tensor.dims)) if d not in gone]


def _sum(builder: Builder, graph: Graph, node: Node, dot: Node, weights: Sequence[int], ids: dict[int, int]) -> int:
    """Add the exchanged sum."""
    dims, dtype = dot.tensor.dims, dot.tensor.dtype
    batch = len(dot.attributes.get("lhs_batch_dims", ()))
    (summed,) = node.attributes["dimensions"]
    side = summed - batch  # The operand that has the summed axis.
    name, other = ("lhs", "rhs")[side], ("lhs", "rhs")[1 - side]

    def each(op: str, type_: TensorType, *operands: int, **attributes: object) -> int:
        return builder.derive(node, op, type_, operands, attributes)

    weight = reduce(lambda a, b: each("multiply", TensorType(dtype, dims), a, b), (ids[i] for i in weights))
    (contracted,) = dot.attributes[f"{name}_contracting_dims"]
    (along,) = _free(graph, dot, side)
    size = graph[dot.operands[side]].tensor.dims[contracted]
    kept = dims[:batch] + (dims[batch + 1 - side],)
    attributes = {
        "lhs_batch_dims": tuple(range(batch)),
        "rhs_batch_dims": tuple(dot.attributes.get(f"{name}_batch_dims", ())),
        "lhs_contracting_dims": (summed,),
        "rhs_contracting_dims": (along,),
    }
    precision = {k: v for k, v in dot.attributes.items() if not k.endswith("_dims")}
    made = each("dot", TensorType(dtype, (*kept, size)), weight, ids[dot.operands[side]], **precision, **attributes)
    order = (
        *dot.attributes.get(f"{other}_batch_dims", ()),
        *_free(graph, dot, 1 - side),
        *dot.attributes[f"{other}_contracting_dims"],
    )
    a = ids[dot.operands[1 - side]]
    if order != tuple(range(len(order))):
        a = each("transpose", TensorType(dtype, (*kept, size)), a, dimensions=order)
    terms = each("multiply", TensorType(dtype, (*kept, size)), a, made)
    return builder.derive(
        node, "reduce", node.type, [terms, ids[node.operands[1]]], {"dimensions": (len(kept),)}, node.graphs
    )
