"""Propagation of a split from one value to all values that it reaches."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from functools import cached_property
from math import prod
from weakref import ref

from jax_stitch.analysis.binding import Binding, admits, covers, inner_sizes, to_operand, to_result
from jax_stitch.analysis.results import Results
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.model import Graph

MAX_SINGLE_ROW = 1 << 17
"""The most elements of a value that a single block may process where there is only one row."""


def bind(graph: Graph, seed: int, binding: Binding, rows: int, candidates: Collection[int]) -> dict[int, Binding]:
    """Propagate a split from ``seed`` to operands and users while it covers all rows, and return the bindings.

    Values outside ``candidates`` (arguments, results of library calls) are bound too, since kernels that read the same
    one may share the read, but the split does not pass through the operations that produce them.
    """
    bound: dict[int, Binding] = {}
    spread(graph, bound, seed, binding, rows, candidates)
    return bound


def spread(
    graph: Graph, bound: dict[int, Binding], seed: int, binding: Binding, rows: int, candidates: Collection[int]
) -> None:
    """Add to ``bound`` the values that a split reaches from ``seed``; bound values stay, and stop the propagation."""
    if seed in candidates and not admits(graph, graph[seed], binding):
        return
    bound[seed] = binding
    # Splits from many seeds pass through the same values.
    known = _arounds.of(graph)
    queue = deque([seed])
    while queue:
        i = queue.popleft()
        key = i, bound[i], rows
        around = known.get(key)
        if around is None:
            around = known[key] = _Around(graph, *key)
        for other, b in around.operands if i in candidates else ():
            if other not in bound and (other not in candidates or admits(graph, graph[other], b)):
                bound[other] = b
                queue.append(other)
        for user in graph.users[i]:
            if user in candidates and user not in bound and (b_of_user := around.user(user)) is not None:
                bound[user] = b_of_user
                queue.append(user)


class _Around:
    """The operands and users that one split of a value reaches, each with its binding. They are computed on demand:
    how a split passes through operations that are no candidates may be undefined."""

    def __init__(self, graph: Graph, i: int, binding: Binding, rows: int) -> None:
        self._graph = ref(graph)  # Cached results of a graph must not keep it alive.
        self._i, self._binding, self._rows = i, binding, rows
        self._users: dict[int, Binding | None] = {}

    @cached_property
    def operands(self) -> tuple[tuple[int, Binding], ...]:
        graph, node = self._held, self._held[self._i]
        at = ((o, to_operand(graph, node, k, self._binding)) for k, o in enumerate(node.operands))
        return tuple((o, b) for o, b in at if b is not None and self._reaches(o, b))

    def user(self, user: int) -> Binding | None:
        """Return the binding of a user, if the split reaches it and it admits the binding; else None."""
        if user not in self._users:
            graph, node = self._held, self._held[user]
            b = to_result(graph, node, node.operands.index(self._i), self._binding)
            is_reached = b is not None and self._reaches(user, b) and admits(graph, node, b)
            self._users[user] = b if is_reached else None
        return self._users[user]

    @property
    def _held(self) -> Graph:
        graph = self._graph()
        assert graph is not None
        return graph

    def _reaches(self, other: int, b: Binding) -> bool:
        if is_rematerializable(self._held[other]) or not covers(b, self._rows):
            return False
        return self._rows > 1 or places_inside(b) <= MAX_SINGLE_ROW


def places_inside(binding: Binding) -> int:
    """Return the number of elements per row."""
    return prod(inner_sizes(binding))


_arounds: Results[tuple[int, Binding, int], _Around] = Results()
"""The neighbours that splits reach from a value, by value, binding and rows."""
