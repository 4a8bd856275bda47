"""Reductions and matrix products small enough to be written out, element by element, inside a loop's body."""

from __future__ import annotations

from itertools import product
from math import prod

from jax_stitch.analysis import Expr, const
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.support import reason_unsupported
from jax_stitch.graph.model import Graph, Node, TensorType

MAX_CONTRACTED = 64
"""Elements that one element of a reduction or a product inside the body is made of."""


def contracted(body: Graph, node: Node, index: Index) -> list[list[tuple[int, Index]]]:
    """The operand elements that one element of a reduction or product is made of, one list for each step."""
    a = node.attributes
    if node.op == "reduce":
        dims = body[node.operands[0]].tensor.dims
        found = []
        for places in product(*(range(dims[d]) for d in a["dimensions"])):
            at = dict(zip(a["dimensions"], places, strict=True))
            kept = iter(index)
            source = tuple(const(at[d]) if d in at else next(kept) for d in range(len(dims)))
            found.append([(o, source) for o in node.operands[: len(node.operands) // 2]])
        return found
    left, right = (body[o].tensor.dims for o in node.operands[:2])
    batch = list(zip(a.get("lhs_batch_dims", ()), a.get("rhs_batch_dims", ()), strict=True))
    pairs = list(zip(a.get("lhs_contracting_dims", ()), a.get("rhs_contracting_dims", ()), strict=True))
    free_left = [d for d in range(len(left)) if d not in {x for x, _ in batch + pairs}]
    free_right = [d for d in range(len(right)) if d not in {y for _, y in batch + pairs}]
    kept_places = iter(index)
    at_left: dict[int, Expr] = {}
    at_right: dict[int, Expr] = {}
    for x, y in batch:
        at_left[x] = at_right[y] = next(kept_places)
    at_left |= {d: next(kept_places) for d in free_left}
    at_right |= {d: next(kept_places) for d in free_right}
    found = []
    for steps in product(*(range(left[x]) for x, _ in pairs)):
        for (x, y), s in zip(pairs, steps, strict=True):
            at_left[x] = at_right[y] = const(s)
        found.append(
            [
                (node.operands[0], tuple(at_left[d] for d in range(len(left)))),
                (node.operands[1], tuple(at_right[d] for d in range(len(right)))),
            ]
        )
    return found


def contraction_size(body: Graph, node: Node) -> int:
    """How many steps ``contracted`` has."""
    dims = body[node.operands[0]].tensor.dims
    name = "dimensions" if node.op == "reduce" else "lhs_contracting_dims"
    return prod(dims[d] for d in node.attributes.get(name, ()))


def is_contraction(body: Graph, node: Node) -> bool:
    """Whether an operation is a reduction or product small enough to be written out."""
    if node.op == "dot":
        ok = isinstance(node.type, TensorType) and node.type.dtype in ("f32", "f64")
        return ok and contraction_size(body, node) <= MAX_CONTRACTED
    if node.op != "reduce" or reason_unsupported(body, node) is not None:
        return False
    return contraction_size(body, node) <= MAX_CONTRACTED
