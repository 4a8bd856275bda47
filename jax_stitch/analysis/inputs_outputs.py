"""What a set of nodes reads from outside, and what outside reads of it."""

from __future__ import annotations

from collections.abc import Collection

from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.model import Graph, TensorType


def inputs_of(graph: Graph, members: Collection[int]) -> tuple[int, ...]:
    """Return the values from outside that members read, less those every kernel makes for itself."""
    nodes = graph.nodes
    outside = {o for i in members for o in nodes[i].operands}.difference(members)
    return tuple(sorted(o for o in outside if not is_rematerializable(nodes[o])))


def outputs_of(graph: Graph, members: Collection[int]) -> tuple[int, ...]:
    """Return the members whose values are read outside, or are results of the graph."""
    inside, users, results = frozenset(members), graph.users, graph.result_set
    outputs = [i for i in inside if i in results or not inside.issuperset(users[i])]
    return tuple(sorted(i for i in outputs if isinstance(graph.nodes[i].type, TensorType)))
