"""The windows of a scatter's updates: where each starts, and where an element lies in it."""

from __future__ import annotations

from jax_stitch.analysis.maps import Index
from jax_stitch.graph.model import Node
from jax_stitch.ir.indices import Expr, const


def window_starts(node: Node, update: Index) -> dict[int, tuple[int, Index]]:
    """Return, for each dimension of the result where it is data, the element that says where an update's window
    starts.
    """
    picked = node.attributes["scatter_dims_to_operand_dims"]
    return {d: (node.operands[1], (update[0], const(k))) for k, d in enumerate(picked)}


def window_index(update: Index) -> tuple[Expr, ...]:
    """Return the index of an element of an update in its window."""
    return update[1:]
