"""What one element of a reduction or of a product is made of, step by step."""

from __future__ import annotations

from math import prod

from jax_stitch.analysis.accesses import Element
from jax_stitch.analysis.maps import Index
from jax_stitch.graph.model import Graph, Node
from jax_stitch.ir.indices.expr import Expr, delinearize


def steps_of(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the sizes of what one element of a reduction or product runs over."""
    dims = graph[node.operands[0]].tensor.dims
    name = "dimensions" if node.op == "reduce" else "lhs_contracting_dims"
    return tuple(dims[d] for d in node.attributes.get(name, ()))


def step_count(graph: Graph, i: int) -> int:
    """Return the number of terms of one element of a reduction or product."""
    return prod(steps_of(graph, graph[i]))


def terms_of(graph: Graph, node: Node, index: Index, step: Expr) -> list[Element]:
    """Return the operand elements that a step of element ``index`` of a reduction or product reads, the operands in
    order; the step counts over ``steps_of``, row-major.
    """
    places = delinearize(step, steps_of(graph, node))
    a = node.attributes
    remaining = iter(index)
    if node.op == "reduce":
        at = dict(zip(a["dimensions"], places, strict=True))
        rank = len(graph[node.operands[0]].tensor.dims)
        source = tuple(at[d] if d in at else next(remaining) for d in range(rank))
        return [(o, source) for o in node.operands[: len(node.operands) // 2]]
    terms: list[Element] = []
    batch = [next(remaining) for _ in a.get("lhs_batch_dims", ())]
    for o, side in zip(node.operands, ("lhs", "rhs"), strict=True):
        known = dict(zip(a.get(f"{side}_batch_dims", ()), batch, strict=True))
        known |= dict(zip(a.get(f"{side}_contracting_dims", ()), places, strict=True))
        terms.append((o, tuple(known[d] if d in known else next(remaining) for d in range(len(graph[o].tensor.dims)))))
    return terms
