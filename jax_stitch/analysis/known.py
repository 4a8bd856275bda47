"""What is found out about elements of a graph, kept as long as the graph is planned: planners ask for the same elements
in many sets of nodes."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from jax_stitch.graph.model import Graph

_known: WeakKeyDictionary[Graph, dict[str, dict[Any, Any]]] = WeakKeyDictionary()


def remembered(graph: Graph, what: str) -> dict[Any, Any]:
    """What is known of one kind, by element; to be filled by whoever finds out more."""
    kinds = _known.get(graph)
    if kinds is None:
        kinds = _known[graph] = {}
    return kinds.setdefault(what, {})


def forget(graph: Graph) -> None:
    """Once a graph is planned: it lives as long as its plan."""
    _known.pop(graph, None)
