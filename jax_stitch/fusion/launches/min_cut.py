"""The minimum cut of a network with integer capacities, exactly: Dinic's algorithm.

Capacities are bytes, whose sums do not fit the 32 bits that SciPy's ``maximum_flow`` computes in.
"""

from __future__ import annotations

from collections.abc import Sequence

Edge = tuple[int, int, int | None]
"""From, to, and the capacity, at least 0; ``None`` where it may not be cut."""


def near_side(count: int, edges: Sequence[Edge], source: int, sink: int) -> frozenset[int]:
    """Return those of the nodes 0 to ``count`` - 1 on the source's side of a cheapest cut between source and sink; of
    several such cuts the one nearest to the sink.

    Raises ``ValueError`` where edges that may not be cut connect source and sink.
    """
    network = _Network(count, edges)
    while network.find_levels(source, sink):
        network.fill(source, sink)
    return frozenset(range(count)) - network.leading_to(sink)


class _Network:
    """What is left of the capacities. Edge ``e`` has its reverse at ``e ^ 1``."""

    def __init__(self, count: int, edges: Sequence[Edge]):
        self._cuttable = sum(c for _, _, c in edges if c is not None)
        self._flow = 0
        self._level: list[int] = []
        self._to: list[int] = []
        self._left: list[int] = []
        self._edges_of: list[list[int]] = [[] for _ in range(count)]
        for u, v, capacity in edges:
            self._edges_of[u].append(len(self._to))
            self._edges_of[v].append(len(self._to) + 1)
            self._to += (v, u)
            self._left += (self._cuttable + 1 if capacity is None else capacity, 0)

    def find_levels(self, source: int, sink: int) -> bool:
        """Set the nodes' distances from the source, and return whether more can flow to the sink."""
        level = [-1] * len(self._edges_of)
        level[source] = 0
        layer = [source]
        while layer and level[sink] < 0:
            further = []
            for u in layer:
                for e in self._edges_of[u]:
                    v = self._to[e]
                    if level[v] < 0 and self._left[e]:
                        level[v] = level[u] + 1
                        further.append(v)
            layer = further
        self._level = level
        return level[sink] >= 0

    def fill(self, source: int, sink: int) -> None:
        """Let flow what can along shortest ways, until each of them has a full edge."""
        to, left, level = self._to, self._left, self._level
        tried = [0] * len(level)
        """How many edges of a node lead no further."""
        way: list[int] = []
        while True:
            u = to[way[-1]] if way else source
            if u == sink:
                self._send(way)
                del way[next(k for k, e in enumerate(way) if not left[e]) :]
                continue
            edges = self._edges_of[u]
            while tried[u] < len(edges):
                e = edges[tried[u]]
                if left[e] and level[to[e]] == level[u] + 1:
                    way.append(e)
                    break
                tried[u] += 1
            else:
                if not way:
                    return
                tried[to[way.pop() ^ 1]] += 1

    def _send(self, way: Sequence[int]) -> None:
        most = min(map(self._left.__getitem__, way))
        for e in way:
            self._left[e] -= most
            self._left[e ^ 1] += most
        self._flow += most
        if self._flow > self._cuttable:
            raise ValueError("edges that may not be cut connect source and sink")

    def leading_to(self, sink: int) -> set[int]:
        """Return the nodes from which more could flow to the sink."""
        reached, waiting = {sink}, [sink]
        while waiting:
            for e in self._edges_of[waiting.pop()]:
                u = self._to[e]
                if u not in reached and self._left[e ^ 1]:
                    reached.add(u)
                    waiting.append(u)
        return reached
