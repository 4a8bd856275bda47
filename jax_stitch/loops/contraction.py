"""Reductions and matrix products small enough to be written out, element by element, inside a loop's body."""

from __future__ import annotations

from jax_stitch.analysis.accesses import Element
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.support import reason_unsupported
from jax_stitch.analysis.terms import step_count, terms_of
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.indices import const

PRODUCTS = frozenset({"f32", "f64", "bf16", "f16"})
"""Element types of the matrix products that a team computes."""

MAX_CONTRACTED = 64
"""Elements that one element of a reduction or a product inside the body is made of."""


def contracted(body: Graph, node: Node, index: Index) -> list[list[Element]]:
    """Return the operand elements that one element of a reduction or product is made of, one list for each step."""
    return [terms_of(body, node, index, const(k)) for k in range(step_count(body, node.id))]


def is_contraction(body: Graph, node: Node) -> bool:
    """Return whether an operation is a reduction or product small enough to be written out."""
    if node.op == "dot":
        ok = isinstance(node.type, TensorType) and node.type.dtype in ("f32", "f64")
        return ok and step_count(body, node.id) <= MAX_CONTRACTED
    if node.op != "reduce" or reason_unsupported(body, node) is not None:
        return False
    return step_count(body, node.id) <= MAX_CONTRACTED


def initials(node: Node) -> tuple[int, ...]:
    """Return what a reduction starts from."""
    return node.operands[len(node.operands) // 2 :] if node.op == "reduce" else ()


def reason_not_summed(body: Graph, node: Node) -> str | None:
    """Return why a team computes no such reduction or product; ``None`` where it does."""
    if node.op == "reduce":
        return reason_unsupported(body, node)
    types = {node.tensor.dtype, *(body[o].tensor.dtype for o in node.operands)}
    return None if types <= PRODUCTS else f"a product of {', '.join(sorted(types))}"
