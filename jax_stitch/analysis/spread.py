"""Spreading a split from one value over all that it reaches."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from math import prod
from weakref import WeakKeyDictionary, ref

from jax_stitch.analysis.binding import Binding, admits, covers, inner_sizes, to_operand, to_result
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.model import Graph

MAX_SINGLE_ROW = 1 << 17
"""Elements of the largest value that a single block may work through where there is but one row."""


def bind(graph: Graph, seed: int, binding: Binding, rows: int, candidates: Collection[int]) -> dict[int, Binding]:
    """Spreads a split from ``seed`` over operands and users while it covers all rows.

    Values outside ``candidates`` (arguments, results of library calls) are bound too, since kernels that read the same
    one may share the read, but the split does not pass through the operation that made them.
    """
    bound: dict[int, Binding] = {}
    spread(graph, bound, seed, binding, rows, candidates)
    return bound


def spread(
    graph: Graph, bound: dict[int, Binding], seed: int, binding: Binding, rows: int, candidates: Collection[int]
) -> None:
    """Adds to ``bound`` what a split reaches from ``seed``; what is bound already stays, and is not passed through."""
    if seed in candidates and not admits(graph, graph[seed], binding):
        return
    bound[seed] = binding
    neighbours = _neighbours_of(graph)
    queue = deque([seed])
    while queue:
        i = queue.popleft()
        operands, users = neighbours.of(i, bound[i], rows)
        for other, b, admitted in operands if i in candidates else ():
            if other not in bound and (admitted or other not in candidates):
                bound[other] = b
                queue.append(other)
        for other, b, admitted in users:
            if other in candidates and other not in bound and admitted:
                bound[other] = b
                queue.append(other)


class _Neighbours:
    """The operands and users that a split of a value reaches, each with its binding and whether that admits it: looked
    up once, since splits from many seeds pass through the same values.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = ref(graph)  # What is kept of a graph must not keep it.
        self._of: dict[tuple[int, Binding, int], tuple[_Reached, _Reached]] = {}

    def of(self, i: int, binding: Binding, rows: int) -> tuple[_Reached, _Reached]:
        key = i, binding, rows
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = self._look_up(i, binding, rows)
        return found

    def _look_up(self, i: int, binding: Binding, rows: int) -> tuple[_Reached, _Reached]:
        graph = self._graph()
        assert graph is not None
        node = graph[i]
        operands = [(o, to_operand(graph, node, k, binding)) for k, o in enumerate(node.operands)]
        users = [(u, to_result(graph, graph[u], graph[u].operands.index(i), binding)) for u in graph.users[i]]
        return _reached(graph, operands, rows), _reached(graph, users, rows)


_Reached = tuple[tuple[int, Binding, bool], ...]


def _reached(graph: Graph, neighbours: Sequence[tuple[int, Binding | None]], rows: int) -> _Reached:
    return tuple(
        (other, b, admits(graph, graph[other], b))
        for other, b in neighbours
        if b is not None
        and not is_rematerializable(graph[other])
        and covers(b, rows)
        and (rows > 1 or places_inside(b) <= MAX_SINGLE_ROW)
    )


_kept: WeakKeyDictionary[Graph, _Neighbours] = WeakKeyDictionary()


def _neighbours_of(graph: Graph) -> _Neighbours:
    kept = _kept.get(graph)
    if kept is None:
        kept = _kept[graph] = _Neighbours(graph)
    return kept


def places_inside(binding: Binding) -> int:
    """Elements per row."""
    return prod(inner_sizes(binding))
