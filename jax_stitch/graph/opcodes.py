"""Classes of HLO opcodes that several passes ask about."""

from __future__ import annotations

from hlo_parser import COLLECTIVES, ELEMENTWISE_BINARY, ELEMENTWISE_UNARY

from .model import Graph, Node

ELEMENTWISE = ELEMENTWISE_UNARY | ELEMENTWISE_BINARY | {"bitcast-convert", "clamp", "select"}
"""One element of the result from one element of each operand (``select`` and ``clamp`` also take scalars;
``bitcast-convert`` counts where the width stays)."""

DATA_MOVEMENT = frozenset(
    ("broadcast", "concatenate", "dynamic-slice", "iota", "pad", "reshape", "reverse", "slice", "transpose")
)
"""Elements are copied from place to place, none is calculated."""

_EFFECTS = COLLECTIVES | {
    "after-all",
    "infeed",
    "outfeed",
    "recv",
    "recv-done",
    "rng",
    "rng-get-and-update-state",
    "send",
    "send-done",
}


def has_effect(node: Node) -> bool:
    """Whether two equal nodes may not be merged, nor one without users dropped."""
    if node.op in _EFFECTS:
        return True
    if node.op == "custom-call" and node.attributes.get("custom_call_has_side_effect", False):
        return True
    return any(graph_has_effect(graph) for graph in node.graphs.values())


def graph_has_effect(graph: Graph) -> bool:
    """Whether any node of the graph, or of what it calls, has an effect."""
    return any(has_effect(node) for node in graph.nodes)
