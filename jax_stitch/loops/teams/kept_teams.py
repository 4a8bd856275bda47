"""A cache of the teams of loops while their program is planned: they are needed while the graph around a loop is
normalised, and again after all loops are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from jax_stitch.analysis.patterns.nest import LIKELY_SHARE, LIKELY_TRIPS
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.results import Results
from jax_stitch.graph.model import Graph, Node, TensorType

Made = TeamLoop | str
"""The teams of a loop, or the reason why there are none."""

_teams: Results[tuple[Hashable, Hashable], tuple[Made, tuple[int, ...]]] = Results()
"""Teams by how they are asked for and by the loop's surroundings, with the ids of the outside values that they use."""


def kept(graph: Graph, node: Node, asked: Hashable, make: Callable[[], Made]) -> Made:
    """Return the result of ``make`` for a ``while`` of ``graph``, or the cached one of a loop with the same body and
    equivalent surroundings, renumbered; ``asked`` is the key of the kind of teams.
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
    """Return the reader of each carried value after the loop, by its number; other readers have negative keys."""
    if isinstance(node.type, TensorType):
        return {0: node.id}
    readers: dict[int, int] = {}
    for k, u in enumerate(graph.users[node.id]):
        of = graph[u]
        readers[of.attributes["index"] if of.op == "get-tuple-element" else -1 - k] = u
    return dict(sorted(readers.items()))


def _around(graph: Graph, node: Node) -> Hashable:
    """Return a key of all outside the body that the roles of the carried values depend on."""
    operands = node.operands
    starts = tuple(
        n.literal.tobytes() if n.literal is not None and not n.literal.ndim else b""
        for n in map(graph.__getitem__, operands)
    )
    same = tuple(map(operands.index, operands))
    trips = node.attributes.get("trip_count")
    # With an unknown trip count, values of the surrounding graph are compared with those of the body.
    whole = graph if trips is None else None
    likely = node.attributes.get(LIKELY_TRIPS), node.attributes.get(LIKELY_SHARE)
    told = trips, likely, node.id in graph.result_set, node.graphs.get("condition")
    return starts, same, tuple(_readers(graph, node)), told, whole, isinstance(node.type, TensorType)
