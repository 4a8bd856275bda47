"""A pattern divided into row passes: passes over the row between which reductions complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod

from msgspec import Struct, field

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import Binding, index_of, inner_sizes, to_operand
from jax_stitch.analysis.locality import elements
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.scans import directions, of_operands
from jax_stitch.analysis.support import ROOTS, is_rematerializable
from jax_stitch.graph import sorts
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.indices import Expr, delinearize, var
from jax_stitch.ir.indices.variables import PLACE, TERM, place_index
from jax_stitch.schedule.model import InnerReducePass, LoopPass, OncePass, RowPass, SortPass


class PatternView(Struct, frozen=True):
    """A pattern's values seen by the scheduler: ``places`` per row of each bound node, and what its reductions run
    over.
    """

    graph: Graph
    pattern: Pattern
    row: Expr
    """The number of the row, in the variables of the kernel's loops."""
    periods: Mapping[int, int] = field(default_factory=dict)
    """By number of places: the runs in which loops over as many places go, where not in one."""

    def places(self, i: int) -> int:
        return prod(inner_sizes(self.pattern.bindings[i]))

    def is_row_value(self, i: int) -> bool:
        return i in self.pattern.bindings and self.places(i) == 1

    def operand_binding(self, reduce: Node) -> Binding:
        """Return the binding of the operands of a reduction that is local to the row, or partial."""
        if reduce.op == PARTIAL:
            return self.pattern.bindings[reduce.operands[0]]
        binding = to_operand(self.graph, reduce, 0, self.pattern.bindings[reduce.id])
        assert binding is not None
        return binding

    def operand_elements(self, reduce: Node) -> tuple[Index, int]:
        """Return the index of the elements a reduction reads, in terms of row and place, and the number of places."""
        return elements(self.operand_binding(reduce), self.row, self.periods)

    def inner_reduce_elements(self, row_pass: InnerReducePass) -> Index:
        """Return the index of what an inner reduction reads, at remaining place ``j`` and reduced place ``q``; the
        other way round where lanes go along what is reduced."""
        reduce = self.graph[row_pass.reduce]
        binding, dims = self.pattern.bindings[reduce.id], self.graph[reduce.operands[0]].tensor.dims
        remaining, step = iter(elements(binding, self.row, self.periods)[0]), var(TERM, prod(row_pass.reduced))
        if row_pass.along:
            remaining = iter(index_of(binding, self.row, step))
            step = place_index(row_pass.size, self.periods.get(row_pass.size))
        if row_pass.shares > 1:
            place, own, shares = var(PLACE, row_pass.size), row_pass.left, row_pass.shares
            at, share = (place // shares, place % shares) if row_pass.neighbours else (place % own, place // own)
            remaining = iter(index_of(binding, self.row, at))
            step = step * shares + share
        along = reduce.attributes["dimensions"]
        reduced = dict(zip(along, delinearize(step, tuple(dims[d] for d in along)), strict=True))
        rank = len(dims)
        return tuple(reduced[d] if d in reduced else next(remaining) for d in range(rank))

    def value_elements(self, i: int) -> tuple[Index, int]:
        return elements(self.pattern.bindings[i], self.row, self.periods)


def results_of(graph: Graph, reduce: Node) -> tuple[int, ...]:
    """Return the nodes that are a reduction's results: itself, or what takes it apart, by result number (-1 where a
    result is not used).
    """
    if isinstance(reduce.type, TensorType):
        return (reduce.id,)
    results = [-1] * (len(reduce.operands) // 2)
    for u in graph.users[reduce.id]:
        results[graph[u].attributes["index"]] = u
    return tuple(results)


def ranks(graph: Graph, pattern: Pattern) -> Mapping[int, int]:
    """Return how many reductions and sorts lie on the longest way to each node inside the pattern."""
    ranks: dict[int, int] = {}
    for i in sorted(pattern.nodes):
        node = graph[i]
        rank = max((ranks.get(o, 0) for o in node.operands), default=0)
        ranks[i] = rank + (node.op in ROOTS)
    return ranks


def row_passes_of(shape: PatternView) -> tuple[RowPass, ...]:
    """Return the passes of a pattern, in an order in which everything is ready when it is needed."""
    graph, pattern = shape.graph, shape.pattern
    rank = ranks(graph, pattern)
    outputs = set(pattern.outputs)
    ways = directions(graph, pattern.inside)
    passes: list[RowPass] = []
    for here in range(max(rank.values(), default=0) + 1):
        row_caches: list[int] = []
        row_writes: list[int] = []
        row_partials: list[int] = []
        loops: _Loops = defaultdict(lambda: {"reduces": [], "writes": [], "partials": []})
        by_place: list[InnerReducePass | SortPass] = []
        for i in sorted(pattern.nodes):
            node = graph[i]
            if node.op in ROOTS:
                if rank[i] - 1 == here:
                    places = shape.places(i)
                    if node.op == "sort":
                        by_place.append(SortPass(i, places, sorts.places_read(graph, node, outputs)))
                    elif places > 1:
                        by_place.append(_inner_reduce(shape, node, places))
                    else:
                        loops[shape.operand_elements(node)[1], of_operands(node, ways)]["reduces"].append(i)
                    # Its own result is written at the next rank.
                if rank[i] == here and i in outputs and isinstance(node.type, TensorType):
                    _write(shape, i, ways[i], row_writes, loops)
                continue
            if rank[i] != here:
                continue
            if node.op == PARTIAL:
                size = shape.operand_elements(node)[1]
                (row_partials if size == 1 else loops[size, frozenset()]["partials"]).append(i)
                continue
            if i in outputs:
                _write(shape, i, ways[i], row_writes, loops)
            if node.op != "get-tuple-element" and shape.is_row_value(i) and _feeds_a_loop(shape, i):
                row_caches.append(i)
        if row_caches or row_writes or row_partials:
            passes.append(OncePass(tuple(row_caches), tuple(row_writes), tuple(row_partials)))
        passes += by_place
        _join_free(loops)
        for size, way in sorted(loops, key=lambda key: (-key[0], sorted(key[1]))):
            reduces, writes, partials = (tuple(loops[size, way][kind]) for kind in ("reduces", "writes", "partials"))
            passes.append(LoopPass(size, reduces, writes, partials, backward=True in way))
    return tuple(passes)


_Loops = defaultdict[tuple[int, frozenset[bool]], dict[str, list[int]]]
"""The roots of passes, by kind; of each pass the places and the ways in which scans have it go (none: either)."""


def _join_free(loops: _Loops) -> None:
    """Let what any pass may compute join one that there is anyway; partial results are cached where forward
    passes are.
    """
    for size, way in list(loops):
        free = (size, frozenset[bool]())
        if way and free in loops and not loops[free]["partials"]:
            for kind, ids in loops.pop(free).items():
                loops[size, way][kind] += ids


def _write(shape: PatternView, i: int, way: frozenset[bool], row_writes: list[int], loops: _Loops) -> None:
    if shape.is_row_value(i):
        row_writes.append(i)
    else:
        loops[shape.places(i), way]["writes"].append(i)


def _inner_reduce(shape: PatternView, reduce: Node, size: int) -> InnerReducePass:
    dims = shape.graph[reduce.operands[0]].tensor.dims
    return InnerReducePass(reduce.id, size, tuple(dims[d] for d in reduce.attributes["dimensions"]))


def _feeds_a_loop(shape: PatternView, i: int) -> bool:
    """Return whether some user inside the pattern has several places per row, so that the value would be computed once
    per place; and none may want it of other rows, which a value computed once per row does not have.
    """
    graph, pattern = shape.graph, shape.pattern
    feeds = False
    for u in graph.users[i]:
        if u not in pattern.nodes or is_rematerializable(graph[u]):
            continue
        node = graph[u]
        if node.op == PARTIAL:
            continue
        if node.op == "reduce":
            feeds |= shape.operand_elements(node)[1] > 1
        elif u not in pattern.bindings:
            return False
        else:
            feeds |= shape.places(u) > 1
    return feeds
