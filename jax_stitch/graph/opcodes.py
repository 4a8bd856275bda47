"""Classes of HLO opcodes that several passes ask about."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from hlo_parser import COLLECTIVES, ELEMENTWISE_BINARY, ELEMENTWISE_UNARY
from jax_stitch.util.python_targets import is_python_call

from .model import Graph, Node

ELEMENTWISE = ELEMENTWISE_UNARY | ELEMENTWISE_BINARY | {"bitcast-convert", "clamp", "select"}
"""One element of the result from one element of each operand (``select`` and ``clamp`` also take scalars;
``bitcast-convert`` counts where the width stays)."""

DATA_MOVEMENT = frozenset(
    ("broadcast", "concatenate", "dynamic-slice", "iota", "pad", "reshape", "reverse", "slice", "transpose")
)
"""Elements are copied from place to place, none is calculated."""

IN_PLACE = frozenset({"scatter", "dynamic-update-slice"})
"""A part of the first operand is changed, in its memory where nothing else reads it."""

TAKES_NO_TIME = frozenset({"parameter", "constant", "iota", "reshape", "tuple", "get-tuple-element"})
"""What waits for nothing, or is its operand under another name."""

EFFECTS = COLLECTIVES | {
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
"""What happens besides the result."""


def calls_python(node: Node) -> bool:
    """Return whether a node is a call of a Python function by JAX."""
    return node.op == "custom-call" and is_python_call(node.attributes.get("custom_call_target", ""))


def python_call(graph: Graph) -> Node | None:
    """Return the first call of a Python function in a graph or in what it calls; None where there is none."""
    for node in graph.nodes:
        if calls_python(node):
            return node
        for inner in node.graphs.values():
            if (call := python_call(inner)) is not None:
                return call
    return None


def has_effect(node: Node) -> bool:
    """Return whether two equal nodes may not be merged, nor one without users dropped."""
    if node.op in EFFECTS:
        return True
    if node.op == "custom-call":
        if node.attributes.get("custom_call_has_side_effect", False):
            return True
        if calls_python(node):  # Also a pure one is called as often as by XLA.
            return True
    return bool(node.graphs) and any(graph_has_effect(graph) for graph in node.graphs.values())


_effects: WeakKeyDictionary[Graph, bool] = WeakKeyDictionary()


def graph_has_effect(graph: Graph) -> bool:
    """Return whether any node of the graph, or of what it calls, has an effect."""
    known = _effects.get(graph)
    if known is None:
        known = _effects[graph] = any(has_effect(node) for node in graph.nodes)
    return known
