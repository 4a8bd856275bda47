"""Products of exchanged operands, where the transposed result is the one whose readers read along memory.

XLA makes the gradient of attention's queries as [heads, length, features], in which order the products behind it could
read it, but the weight gradient of all three projections wants [features, length], beside those of keys and values:
one more kernel that only turns it around. With its operands exchanged the product gives [heads, features, length],
which all of them read as it lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.fusion.rewrites.operand_layouts import may_exchange, origin_of
from jax_stitch.graph.builder import Builder, copied, freeze
from jax_stitch.graph.flattening import IN_PRODUCT
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.products import sides_exchanged
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.util.values import replace


def exchanged(graph: Graph) -> Graph:
    """Return the graph with the operands of such products exchanged, and views of their results in the order of
    before.
    """
    products = {n.id for n in graph.nodes if n.op == "dot" and _is_against_its_readers(graph, n)}
    if not products:
        return graph

    def instead(builder: Builder, node: Node, ids: Mapping[int, int]) -> int | None:
        if node.id in products:
            return _exchanged(builder, node, tuple(ids[o] for o in node.operands))
        return _turned_back(builder, node, ids)

    return copied(graph, instead)


def _turned_back(builder: Builder, node: Node, ids: Mapping[int, int]) -> int | None:
    """Return what a transpose of a transpose is, where the one undoes the other."""
    if node.op != "transpose":
        return None
    before = builder[ids[node.operands[0]]]
    if before.op != "transpose" or before.kernel:
        return None
    order, order_before = node.attributes["dimensions"], before.attributes["dimensions"]
    return before.operands[0] if all(order_before[k] == d for d, k in enumerate(order)) else None


def _exchanged(builder: Builder, dot: Node, operands: tuple[int, ...]) -> int:
    """Add the product of exchanged operands, and its result in the order of before."""
    dims = dot.tensor.dims
    order = (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)
    type_ = TensorType(dot.tensor.dtype, tuple(dims[d] for d in order))
    product = builder.derive(dot, "dot", type_, operands[::-1], sides_exchanged(dot.attributes))
    view = replace(dot, kernel="", op="transpose", operands=(product,), attributes=freeze({"dimensions": order}))
    return builder.add(view)


def _is_against_its_readers(graph: Graph, dot: Node) -> bool:
    """Return whether fewer readers read it with a stride if the last two dimensions of a product are exchanged."""
    dims = dot.tensor.dims
    batch = dot.attributes.get("lhs_batch_dims", ())
    if len(dims) != len(batch) + 2 or min(dims[-2:]) < 2 or dot.id in graph.result_set:
        return False
    here = there = 0
    for i in _read(graph, dot.id):
        origin = origin_of(graph, i, len(graph[i].tensor.dims) - 1, sums=True)
        here += origin == (dot.id, len(dims) - 2)
        there += origin == (dot.id, len(dims) - 1)
    return there < here


def _read(graph: Graph, start: int) -> Iterator[int]:
    """Yield the product and what is a move of it or computed of it alone, as far as that is read in its own order.

    Sums over one of its last two dimensions are as good in any order, and so are products that could read it in another
    (see ``operand_layouts``) or turn it around themselves.
    """
    waiting, seen = [start], {start}
    while waiting:
        i = waiting.pop()
        fixed = i in graph.result_set
        for u in graph.users[i]:
            user = graph[u]
            if _follows(graph, user) or _is_of_the_batch(graph, user, start):
                if u not in seen:
                    seen.add(u)
                    waiting.append(u)
            elif user.op == "dot":
                fixed |= not all(may_exchange(graph, user, k) for k, o in enumerate(user.operands) if o == i)
            else:
                fixed |= user.op != "reduce" and IN_PRODUCT not in user.attributes
        if fixed:
            yield i


def _is_of_the_batch(graph: Graph, node: Node, product: int) -> bool:
    """Return whether a node sums a product's matrices up, as of a product that was split along what it contracts."""
    if node.op != "reduce" or len(node.operands) != 2:
        return False
    last = len(graph[product].tensor.dims) - 1
    remaining = {origin_of(graph, node.id, d, sums=True) for d in range(len(node.tensor.dims))}
    return {(product, last), (product, last - 1)} <= remaining


def _follows(graph: Graph, node: Node) -> bool:
    """Return whether a value is another one moved, or computed of it and numbers."""
    if node.op in ("reshape", "transpose"):
        return IN_PRODUCT not in node.attributes
    others = [
        o for o in node.operands if graph[o].op not in ("broadcast", "constant") and not is_rematerializable(graph[o])
    ]
    return node.op in ELEMENTWISE and len(others) == 1
