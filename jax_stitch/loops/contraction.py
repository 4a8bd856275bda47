"""Reductions and matrix products small enough to be written out, element by element, inside a loop's body."""

from __future__ import annotations

from jax_stitch.analysis import const
from jax_stitch.analysis.accesses import Element
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.support import reason_unsupported
from jax_stitch.analysis.terms import step_count, terms_of
from jax_stitch.graph.model import Graph, Node, TensorType

MAX_CONTRACTED = 64
"""Elements that one element of a reduction or a product inside the body is made of."""


def contracted(body: Graph, node: Node, index: Index) -> list[list[Element]]:
    """The operand elements that one element of a reduction or product is made of, one list for each step."""
    return [terms_of(body, node, index, const(k)) for k in range(step_count(body, node.id))]


def is_contraction(body: Graph, node: Node) -> bool:
    """Whether an operation is a reduction or product small enough to be written out."""
    if node.op == "dot":
        ok = isinstance(node.type, TensorType) and node.type.dtype in ("f32", "f64")
        return ok and step_count(body, node.id) <= MAX_CONTRACTED
    if node.op != "reduce" or reason_unsupported(body, node) is not None:
        return False
    return step_count(body, node.id) <= MAX_CONTRACTED


def initials(node: Node) -> tuple[int, ...]:
    """Return what a reduction starts from."""
    return node.operands[len(node.operands) // 2 :] if node.op == "reduce" else ()
