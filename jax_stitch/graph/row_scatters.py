"""Scatters of whole windows, each to the places that one vector of indices picks."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .builder import Builder
from .model import Graph, Node


class RowScatter(Struct, frozen=True):
    """A scatter of ``count`` whole windows: ``targets`` are the operand's dimensions that are picked, ``rest`` the
    others. ``update`` is the updates' dimensions in the order count, rest; those of size 1 left out.
    """

    targets: tuple[int, ...]
    rest: tuple[int, ...]
    update: tuple[int, ...]


def row_scatter(nodes: Builder | Graph | Sequence[Node], node: Node) -> RowScatter | None:
    """Return the form of such a scatter, one window an index vector; None for any other."""
    a = node.attributes
    operand, indices, updates = (nodes[o].tensor for o in node.operands)
    if a.get("input_batching_dims") or len(indices.dims) != 2 or a["index_vector_dim"] != 1 or 0 in updates.dims:
        return None
    targets, gone = tuple(a["scatter_dims_to_operand_dims"]), a.get("inserted_window_dims", ())
    rest = tuple(d for d in range(len(operand.dims)) if d not in targets)
    windowed = [d for d in range(len(operand.dims)) if d not in gone]
    of = dict(zip(windowed, a.get("update_window_dims", ()), strict=True))
    if any(updates.dims[u] != (1 if d in targets else operand.dims[d]) for d, u in of.items()):
        return None
    if any(d in gone for d in rest):
        return None
    (count,) = (d for d in range(len(updates.dims)) if d not in of.values())
    return RowScatter(targets, rest, (count, *(of[d] for d in rest)))
