"""How large values are."""

from __future__ import annotations

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.model import Graph, Node, TensorType


def node_bytes(node: Node) -> int:
    """Return the size of a value in bytes."""
    if isinstance(node.type, TensorType):
        return _array_bytes(node.type)
    return sum(_array_bytes(e) for e in getattr(node.type, "elements", ()) if isinstance(e, TensorType))


def _array_bytes(t: TensorType) -> int:
    return (t.size * ELEMENT_TYPES[t.dtype].bits + 7) // 8


def is_of_one_number(graph: Graph, i: int) -> bool:
    """Return whether an array has the same number everywhere."""
    node = graph[i]
    if node.op != "broadcast":
        return False
    source = graph[node.operands[0]]
    return source.tensor.size == 1 or is_rematerializable(source)
