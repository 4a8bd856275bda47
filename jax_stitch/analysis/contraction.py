"""Reductions and matrix products small enough to be written out, element by element, inside a loop's body."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jax_stitch.analysis.accesses import Access, Accesses, Element
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.support import reason_unsupported
from jax_stitch.analysis.terms import step_count, terms_of
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.indices import Expr, const, var
from jax_stitch.ir.indices.variables import TERM

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


def contraction(body: Graph, i: int) -> Node | None:
    """Return the reduction or product whose result, or one of whose results, a value is."""
    node = body[i]
    if node.op == "get-tuple-element":
        node = body[node.operands[0]]
    return node if node.op in ("dot", "reduce") else None


def step_of(body: Graph, node: Node) -> Expr:
    """Return the step that a team's text for a reduction or product counts."""
    return var(TERM, step_count(body, node.id))


def one_literal(graph: Graph, i: int) -> np.ndarray | None:
    """Return the number that a value is everywhere, which is written out in the kernel's text."""
    node = graph[graph[i].operands[0]] if graph[i].op == "broadcast" else graph[i]
    return node.literal.reshape(()) if node.literal is not None and node.literal.size == 1 else None


def written_out(of: Accesses, element: Element) -> Sequence[Access]:
    """Return what an element reads if reductions and products are written out term by term."""
    known = of.written_out.get(element)
    if known is None:
        known = of.written_out[element] = _written_out(of, element)
    return known


def _written_out(of: Accesses, element: Element) -> tuple[Access, ...]:
    i, index = element
    node = of.graph[i]
    if node.op == "get-tuple-element":
        return (Access((node.operands[0], index), True),)
    if is_contraction(of.graph, node):
        terms = (e for step in contracted(of.graph, node, index) for e in step)
        return tuple(Access(e, True) for e in (*terms, *((o, ()) for o in initials(node))))
    return of.operands(element)
