"""The teams of loops, kept while their program is planned: a loop is asked for its teams where the graph around it is
made fit for them, and again when all loops have been.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from jax_stitch.analysis.results import Results
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.nest import LIKELY_TRIPS
from jax_stitch.ir.team import TeamLoop

Made = TeamLoop | str
"""The teams of a loop, or why there are none."""

_teams: Results[tuple[Hashable, Hashable], tuple[Made, tuple[int, ...]]] = Results()
"""Teams by how they are asked for and what is around the loop, with the values outside that they read."""


def kept(graph: Graph, node: Node, asked: Hashable, make: Callable[[], Made]) -> Made:
    """What ``make`` says of a ``while`` of ``graph``, or has said of one that has the same body and about the same
    around it; ``asked`` is how its teams are to be.
    """
    around = _around(graph, node)
    found, key = _teams.of(node.graphs["body"]), (asked, around)
    outside = *node.operands, *_readers(graph, node).values()
    if key not in found:
        made = found[key] = make(), outside
        return made[0]
    loop, before = found[key]
    if isinstance(loop, str) or outside == before:
        return loop
    moved = loop.renumbered(dict(zip(before, outside, strict=True)))
    found[key] = moved, outside
    return moved


def _readers(graph: Graph, node: Node) -> Mapping[int, int]:
    """What reads each carried value after the loop, by number; of other readers by how many they are, below zero."""
    if isinstance(node.type, TensorType):
        return {0: node.id}
    readers: dict[int, int] = {}
    for k, u in enumerate(graph.users[node.id]):
        of = graph[u]
        readers[of.attributes["index"] if of.op == "get-tuple-element" else -1 - k] = u
    return dict(sorted(readers.items()))


def _around(graph: Graph, node: Node) -> Hashable:
    """What the roles of the values that a loop carries depend on outside its body."""
    operands = node.operands
    starts = tuple(
        n.literal.tobytes() if n.literal is not None and not n.literal.ndim else b""
        for n in map(graph.__getitem__, operands)
    )
    same = tuple(map(operands.index, operands))
    trips = node.attributes.get("trip_count")
    # Where nobody knows how many trips there are, what is around the loop is compared with what is in it.
    whole = graph if trips is None else None
    told = trips, node.attributes.get(LIKELY_TRIPS), node.id in graph.result_set, node.graphs.get("condition")
    return starts, same, tuple(_readers(graph, node)), told, whole, isinstance(node.type, TensorType)
