"""Sums at indices that are data: the gradient of a look-up in a table, inside a loop that one team runs."""

from __future__ import annotations

from jax_stitch.graph.model import Graph, Node, TensorType

ADDED = frozenset({"f32", "f64", "s32", "u32"})
"""Element types of arrays to one element of which several threads can add."""


def scatter_reason(body: Graph, node: Node) -> str | None:
    """Return why a ``scatter`` is none that threads of a team can do, or ``None`` where it is: it adds whole
    windows.
    """
    a = node.attributes
    if len(node.operands) != 3 or not isinstance(node.type, TensorType) or node.type.dtype not in ADDED:
        return f"a scatter of {node.type}"
    if [n.op for n in node.graphs["to_apply"].nodes if n.op != "parameter"] != ["add"]:
        return "a scatter that does not add"
    indices, updates = (body[o].tensor.dims for o in node.operands[1:])
    plain = tuple(a.get("update_window_dims", ())) == tuple(range(1, len(updates)))
    plain = plain and not a.get("inserted_window_dims") and not a.get("input_batching_dims")
    plain = plain and a["index_vector_dim"] == 1 and len(indices) == 2 and len(updates) == 1 + len(node.type.dims)
    return None if plain else "a scatter of another form than XLA's"
