"""Is a set of nodes local under a split? Decided exactly, by following the index of every element that is read."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from jax_stitch.analysis import Expr, reads, var
from jax_stitch.analysis.binding import Binding, index_of, inner_sizes, position_in
from jax_stitch.analysis.known import remembered
from jax_stitch.analysis.maps import MOVES, Guard, Index
from jax_stitch.analysis.support import is_free
from jax_stitch.graph.model import Graph, Node
from jax_stitch.graph.scans import scan_of


class NotLocal(Exception):
    """Computing ``root`` reads an element of ``node`` that may belong to another row."""

    def __init__(self, node: int, root: int):
        super().__init__(f"%{root} needs values of %{node} from other rows")
        self.node, self.root = node, root


Element = tuple[int, Index]

PARTIAL = "partial-reduce"
"""A reduction over the rows of one block each: the first step of a reduction across rows (its result's first dimension
is the block).
"""

ROW = "row"
BATCH = "batch"
PLACE = "j"
RUN = "run"


def row_index(rows: int, period: int | None = None) -> Expr:
    """The number of a row; as ``batch * period + row`` where rows are worked through in batches of ``period``."""
    if period is None or period == rows:
        return var(ROW, rows)
    return var(BATCH, rows // period) * period + var(ROW, period)


def place_index(size: int, period: int | None = None) -> Expr:
    """A place inside the row; as ``run * period + j`` where places are worked through in runs of ``period``."""
    if period is None or period == size:
        return var(PLACE, size)
    return var(RUN, size // period) * period + var(PLACE, period)


@functools.lru_cache(4096)
def _index(binding: Binding, row: Expr, place: Expr) -> Index:
    return index_of(binding, row, place)


def elements(binding: Binding, row: Expr, periods: Mapping[int, int] = MappingProxyType({})) -> tuple[Index, int]:
    """The index of a bound value's elements in terms of the row and the place ``j`` inside it, and the number of
    places.
    """
    size = prod(inner_sizes(binding))
    return _index(binding, row, place_index(size, periods.get(size))), size


@dataclass(frozen=True, slots=True)
class Walk:
    """Every element visited on the way from an element to the values that are stored."""

    visited: Mapping[Element, bool]
    """Elements computed; whether they are needed whatever the row and place (not only under a condition, as in
    concatenate and pad).
    """
    loads: Mapping[Element, bool]
    """Elements of kernel inputs, likewise."""
    stored: Mapping[Element, bool]
    """Elements of values stored inside the kernel, likewise."""


@dataclass(frozen=True, slots=True)
class Inside:
    """The operations of a kernel, and what it holds of their values."""

    graph: Graph
    nodes: Collection[int]
    """What it computes."""
    bindings: Mapping[int, Binding]
    """Of the values held, and of scans."""
    stored: Collection[int]
    """Values held whole, each row's for that row."""
    row: Expr


def walk(
    inside: Inside,
    start: Element,
    kept: Collection[Element] = (),
    seen: Collection[Element] = (),
    *,
    expand_start: bool = False,
    times: Counter[int] | None = None,
) -> Walk:
    """Follows one element (a node and its index) down to kernel inputs and stored values.

    Where another row's element of a stored value is read, ``NotLocal`` is raised. ``kept`` are single elements held
    where they were computed; at any other index the value is computed once more. What lies below the elements ``seen``
    is left out. ``expand_start`` asks for what ``start`` is computed from, though it be held itself. ``times`` counts
    how many elements of each node are computed, over several walks; below those of a node that is computed
    ``too_often`` nothing is followed.
    """
    graph, held = inside.graph, _Held(inside, start, kept, expand_start)
    visited: dict[Element, bool] = {}
    loads: dict[Element, bool] = {}
    found: dict[Element, bool] = {}
    by_name = {"visited": visited, "loads": loads, "stored": found}
    kinds: dict[Element, dict[Element, bool]] = {}
    read = remembered(graph, "operands")
    stack = [(start, True)]
    while stack:
        here, always = stack.pop()
        kind = kinds.get(here)
        if kind is None:
            if here in seen:
                continue
            kind = kinds[here] = by_name[held.kind(here)]
            if kind is visited:
                kind[here] = always
                if times is not None:
                    times[here[0]] += 1
                    if too_often(graph[here[0]], times[here[0]]):
                        continue
                below = _operands(graph, here, read)
                stack.extend(below if always else ((e, False) for e, _ in below))
                continue
        if always and not kind.get(here, False):
            kind[here] = True
            if kind is visited:
                stack.extend(_operands(graph, here, read))
        else:
            kind.setdefault(here, always)
    return Walk(visited, loads, found)


MOST_TIMES, MOST_MOVES = 16, 512
"""How many elements of a value a kernel may compute for each place of its own, and how many it may only move."""


def too_often(node: Node, times: int) -> bool:
    """Whether no kernel may compute so many elements of a node for each place of its own."""
    return times > (MOST_MOVES if node.op in MOVES else MOST_TIMES) and not is_free(node)


@dataclass(frozen=True, slots=True)
class _Held:
    """What a walk finds ready, and so does not go through."""

    inside: Inside
    start: Element
    kept: Collection[Element]
    expand_start: bool

    def kind(self, here: Element) -> str:
        """Which of the three an element of a walk is."""
        i, _ = here
        if not (self.expand_start and here == self.start):
            if i in self.inside.stored:
                self._must_be_own(here)
                return "stored"
            if here in self.kept:
                return "stored"
        if i not in self.inside.nodes and not is_free(self.inside.graph[i]):
            return "loads"
        self._must_be_at_hand(here)
        return "visited"

    def _must_be_own(self, here: Element) -> None:
        i, at = here
        if position_in(self.inside.bindings[i], self.inside.row, at) is None:
            raise NotLocal(i, self.start[0])

    def _must_be_at_hand(self, here: Element) -> None:
        """Of a scan there is only the value at the lanes' own place and row, and the places are those it goes along."""
        i, at = here
        graph = self.inside.graph
        scan = scan_of(graph, graph[i])
        if scan is None:
            return
        along = var(PLACE, graph[i].tensor.dims[scan.dimension])
        if at[scan.dimension] != along or at != elements(self.inside.bindings[i], self.inside.row)[0]:
            raise NotLocal(i, self.start[0])


def guards_of(graph: Graph, visited: Iterable[Element]) -> Iterator[Guard]:
    """The conditions on which elements that are computed read others."""
    for i, at in visited:
        if graph[i].op in ("concatenate", "pad", "dynamic-update-slice"):
            for read in reads(graph, graph[i], at):
                yield from read.guards


_Operands = tuple[tuple[Element, bool], ...]


def _operands(graph: Graph, element: Element, known: dict[Element, _Operands]) -> _Operands:
    """What an element reads, and whether it does so under no condition."""
    found = known.get(element)
    if found is None:
        found = known[element] = _operands_of(graph, *element)
    return found


def _operands_of(graph: Graph, i: int, at: Index) -> _Operands:
    node = graph[i]
    if node.op in ("constant", "iota", "reduce", "sort", "get-tuple-element", PARTIAL, "parameter"):
        return ()
    found: list[tuple[Element, bool]] = []
    for read in reads(graph, node, at):
        found.append(((node.operands[read.operand], read.index), not read.guards))
        found += (((node.operands[operand], start), not read.guards) for _, operand, start in read.starts)
    return tuple(found)
