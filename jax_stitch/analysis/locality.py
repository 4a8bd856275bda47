"""Is a set of nodes local under a split? Decided exactly, by following the index of every element that is read."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType

from msgspec import Struct

from jax_stitch.analysis.accesses import CACHED, COMPUTED, LEFT_OUT, LOADED, Access, Element, View, Walk, accesses, walk
from jax_stitch.analysis.binding import Binding, index_of, inner_sizes, position_in
from jax_stitch.analysis.maps import MOVES, Guard, Index
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.model import Graph, Node
from jax_stitch.graph.scans import scan_of
from jax_stitch.ir.indices import Expr, var
from jax_stitch.ir.indices.variables import PLACE, place_index


class NotLocal(Exception):
    """Computing ``root`` reads an element of ``node`` that may belong to another row."""

    def __init__(self, node: int, root: int):
        super().__init__(f"%{root} needs values of %{node} from other rows")
        self.node, self.root = node, root


@functools.lru_cache(4096)
def _index(binding: Binding, row: Expr, place: Expr) -> Index:
    return index_of(binding, row, place)


def elements(binding: Binding, row: Expr, periods: Mapping[int, int] = MappingProxyType({})) -> tuple[Index, int]:
    """Return the index of a bound value's elements in terms of the row and the place ``j`` inside it, and the number of
    places.
    """
    size = prod(inner_sizes(binding))
    return _index(binding, row, place_index(size, periods.get(size))), size


class Inside(Struct, frozen=True):
    """The operations of a kernel, and what it holds of their values."""

    graph: Graph
    nodes: Collection[int]
    """What it computes."""
    bindings: Mapping[int, Binding]
    """Of the values held, and of scans."""
    cached: Collection[int]
    """Values held whole, each row's for that row."""
    row: Expr


def walk_row(
    inside: Inside,
    start: Element,
    own_cached: Collection[Element] = (),
    seen: Collection[Element] = (),
    *,
    expand_start: bool = False,
    times: Counter[int] | None = None,
) -> Walk:
    """Follow one element (a node and its index) down to kernel inputs and cached values.

    Where another row's element of a cached value is read, ``NotLocal`` is raised. ``own_cached`` are single elements
    held where they were computed; at any other index the value is computed once more. What lies below the elements
    ``seen`` is left out. ``expand_start`` asks for what ``start`` is computed from, though it be held itself. ``times``
    counts how many elements of each node are computed, over several walks; below those of a node that is computed
    ``too_often`` nothing is followed.
    """
    return walk(_Row(inside, start, own_cached, seen, expand_start, times), (start,))


MOST_TIMES, MOST_MOVES = 16, 512
"""How many elements of a value a kernel may compute for each place of its own, and how many it may only move."""


def too_often(node: Node, times: int) -> bool:
    """Return whether no kernel may compute so many elements of a node for each place of its own."""
    return times > (MOST_MOVES if node.op in MOVES else MOST_TIMES) and not is_rematerializable(node)


class _Row(View):
    """What a kernel of straight code computes for a row, and what it finds ready."""

    def __init__(
        self,
        inside: Inside,
        start: Element,
        own_cached: Collection[Element],
        seen: Collection[Element],
        expand_start: bool,
        times: Counter[int] | None,
    ) -> None:
        super().__init__(inside.graph)
        self.inside, self.start, self.own_cached, self.seen = inside, start, own_cached, seen
        self.expand_start, self.times = expand_start, times

    def kind(self, element: Element) -> str:
        if element in self.seen:
            return LEFT_OUT
        i, _ = element
        inside = self.inside
        if not (self.expand_start and element == self.start):
            if i in inside.cached:
                self._must_be_own(element)
                return CACHED
            if element in self.own_cached:
                return CACHED
        node = self.graph.nodes[i]
        if i not in inside.nodes and not is_rematerializable(node):
            return LOADED
        if node.op == "reduce-window":
            self._must_be_at_hand(element)
        if self.times is not None:
            self.times[i] += 1
        return COMPUTED

    def operands(self, element: Element) -> Sequence[Access]:
        if self.times is not None:
            i, _ = element
            if self.times[i] > MOST_TIMES and too_often(self.graph[i], self.times[i]):
                return ()
        return self.accesses.operands(element)

    def _must_be_own(self, element: Element) -> None:
        i, at = element
        if position_in(self.inside.bindings[i], self.inside.row, at) is None:
            raise NotLocal(i, self.start[0])

    def _must_be_at_hand(self, element: Element) -> None:
        """Refuse an element of a scan at another place or row than the lane's own, or along another dimension."""
        i, at = element
        graph = self.graph
        scan = scan_of(graph, graph[i])
        if scan is None:
            return
        along = var(PLACE, graph[i].tensor.dims[scan.dimension])
        if at[scan.dimension] != along or at != elements(self.inside.bindings[i], self.inside.row)[0]:
            raise NotLocal(i, self.start[0])


def guards_of(graph: Graph, computed: Iterable[Element]) -> Iterator[Guard]:
    """Yield the conditions on which elements that are computed read others."""
    for element in computed:
        if graph[element[0]].op in ("concatenate", "pad", "dynamic-update-slice"):
            for read in accesses(graph).reads(element):
                yield from read.guards
