"""The analysis manager: what analyses have found out of graphs, kept while a program is planned.

Each analysis declares its results once, as ``Results[Key, Result]``: a key is what a result depends on besides its
graph. Graphs do not change, which says what is invalid when: a pass that makes another graph has no results for it yet,
and one that returns the graph that it was given keeps them all. ``forget`` drops them when a plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from jax_stitch.graph.model import Graph

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Results(Generic[Key, Result]):
    """The results of one analysis, of each graph by their keys."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Graph, dict[Key, Result]] = WeakKeyDictionary()
        _every.append(self)

    def of(self, graph: Graph) -> dict[Key, Result]:
        """Return the results of a graph so far, to add to."""
        found = self._of.get(graph)
        if found is None:
            found = self._of[graph] = {}
        return found

    def get(self, graph: Graph, key: Key, make: Callable[[], Result]) -> Result:
        """Return a result, made now if there is none yet."""
        found = self.of(graph)
        if key not in found:
            found[key] = make()
        return found[key]

    def forget(self) -> None:
        """Drop the results of all graphs."""
        self._of.clear()


_every: list[Results[Any, Any]] = []


def forget() -> None:
    """Drop all results. Graphs live as long as the plans that users hold; results are of use until then."""
    for results in _every:
        results.forget()
