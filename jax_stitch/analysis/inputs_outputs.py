"""What a set of nodes reads from outside, and what outside reads of it."""

from __future__ import annotations

from collections.abc import Collection

from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.model import Graph, TensorType


def inputs_of(graph: Graph, members: Collection[int]) -> tuple[int, ...]:
    """The values from outside that members read, less those every kernel makes for itself."""
    inputs = {o for i in members for o in graph[i].operands if o not in members and not is_rematerializable(graph[o])}
    return tuple(sorted(inputs))


def outputs_of(graph: Graph, members: Collection[int]) -> tuple[int, ...]:
    """The members whose values are read outside, or are results of the graph."""
    results = set(graph.results)
    outputs = [i for i in members if i in results or any(u not in members for u in graph.users[i])]
    return tuple(sorted(i for i in outputs if isinstance(graph[i].type, TensorType)))
