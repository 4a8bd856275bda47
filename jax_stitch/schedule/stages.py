"""Cutting a pattern into stages: passes over the row between which reductions complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from jax_stitch.analysis import Expr, delinearize, var
from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import Binding, index_of, inner_sizes, to_operand
from jax_stitch.analysis.locality import PLACE, elements
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.scans import directions, of_operands
from jax_stitch.analysis.support import ROOTS, is_rematerializable
from jax_stitch.graph import sorts
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.pattern import Pattern
from jax_stitch.schedule.model import KeptReduceStage, LoopStage, RowStage, SortStage, Stage


@dataclass(frozen=True, slots=True)
class PatternView:
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
        """The binding of the operands of a reduction that is local to the row, or partial."""
        if reduce.op == PARTIAL:
            return self.pattern.bindings[reduce.operands[0]]
        found = to_operand(self.graph, reduce, 0, self.pattern.bindings[reduce.id])
        assert found is not None
        return found

    def operand_elements(self, reduce: Node) -> tuple[Index, int]:
        """The index of the elements a reduction reads, in terms of row and place, and the number of places."""
        return elements(self.operand_binding(reduce), self.row, self.periods)

    def kept_elements(self, stage: KeptReduceStage) -> Index:
        """The index of what a reduction that keeps places reads, at kept place ``j`` and reduced place ``q``."""
        reduce = self.graph[stage.reduce]
        binding, dims = self.pattern.bindings[reduce.id], self.graph[reduce.operands[0]].tensor.dims
        kept, step = iter(elements(binding, self.row, self.periods)[0]), var("q", prod(stage.reduced))
        if stage.shares > 1:
            place, own = var(PLACE, stage.kept), stage.kept // stage.shares
            kept = iter(index_of(binding, self.row, place % own))
            step = step * stage.shares + place // own
        along = reduce.attributes["dimensions"]
        reduced = dict(zip(along, delinearize(step, tuple(dims[d] for d in along)), strict=True))
        rank = len(dims)
        return tuple(reduced[d] if d in reduced else next(kept) for d in range(rank))

    def value_elements(self, i: int) -> tuple[Index, int]:
        return elements(self.pattern.bindings[i], self.row, self.periods)


def results_of(graph: Graph, reduce: Node) -> tuple[int, ...]:
    """The nodes that are a reduction's results: itself, or what takes it apart, by result number (-1 where a result is
    not used).
    """
    if isinstance(reduce.type, TensorType):
        return (reduce.id,)
    found = [-1] * (len(reduce.operands) // 2)
    for u in graph.users[reduce.id]:
        found[graph[u].attributes["index"]] = u
    return tuple(found)


def levels(graph: Graph, pattern: Pattern) -> Mapping[int, int]:
    """How many reductions and sorts lie on the longest way to each node inside the pattern."""
    found: dict[int, int] = {}
    for i in sorted(pattern.nodes):
        node = graph[i]
        level = max((found.get(o, 0) for o in node.operands), default=0)
        found[i] = level + (node.op in ROOTS)
    return found


def stages_of(shape: PatternView) -> tuple[Stage, ...]:
    """The stages of a pattern, in an order in which everything is ready when it is needed."""
    graph, pattern = shape.graph, shape.pattern
    level = levels(graph, pattern)
    outputs = set(pattern.outputs)
    ways = directions(graph, pattern.inside)
    found: list[Stage] = []
    for here in range(max(level.values(), default=0) + 1):
        row_keeps: list[int] = []
        row_stores: list[int] = []
        row_partials: list[int] = []
        loops: _Loops = defaultdict(lambda: {"reduces": [], "stores": [], "partials": []})
        by_place: list[KeptReduceStage | SortStage] = []
        for i in sorted(pattern.nodes):
            node = graph[i]
            if node.op in ROOTS:
                if level[i] - 1 == here:
                    kept = shape.places(i)
                    if node.op == "sort":
                        by_place.append(SortStage(i, kept, sorts.places_read(graph, node, outputs)))
                    elif kept > 1:
                        by_place.append(_kept_reduce(shape, node, kept))
                    else:
                        loops[shape.operand_elements(node)[1], of_operands(node, ways)]["reduces"].append(i)
                    # Its own result is stored at the next level.
                if level[i] == here and i in outputs and isinstance(node.type, TensorType):
                    _store(shape, i, ways[i], row_stores, loops)
                continue
            if level[i] != here:
                continue
            if node.op == PARTIAL:
                size = shape.operand_elements(node)[1]
                (row_partials if size == 1 else loops[size, frozenset()]["partials"]).append(i)
                continue
            if i in outputs:
                _store(shape, i, ways[i], row_stores, loops)
            if node.op != "get-tuple-element" and shape.is_row_value(i) and _feeds_a_loop(shape, i):
                row_keeps.append(i)
        if row_keeps or row_stores or row_partials:
            found.append(RowStage(tuple(row_keeps), tuple(row_stores), tuple(row_partials)))
        found += by_place
        _join_free(loops)
        for size, way in sorted(loops, key=lambda key: (-key[0], sorted(key[1]))):
            reduces, stores, partials = (tuple(loops[size, way][kind]) for kind in ("reduces", "stores", "partials"))
            found.append(LoopStage(size, reduces, stores, partials, backward=True in way))
    return tuple(found)


_Loops = defaultdict[tuple[int, frozenset[bool]], dict[str, list[int]]]
"""The roots of passes, by kind; of each pass the places and the ways in which scans have it go (none: either)."""


def _join_free(loops: _Loops) -> None:
    """What any pass may compute joins one that there is anyway; partial results are kept where forward passes are."""
    for size, way in list(loops):
        free = (size, frozenset[bool]())
        if way and free in loops and not loops[free]["partials"]:
            for kind, ids in loops.pop(free).items():
                loops[size, way][kind] += ids


def _store(shape: PatternView, i: int, way: frozenset[bool], row_stores: list[int], loops: _Loops) -> None:
    if shape.is_row_value(i):
        row_stores.append(i)
    else:
        loops[shape.places(i), way]["stores"].append(i)


def _kept_reduce(shape: PatternView, reduce: Node, kept: int) -> KeptReduceStage:
    dims = shape.graph[reduce.operands[0]].tensor.dims
    return KeptReduceStage(reduce.id, kept, tuple(dims[d] for d in reduce.attributes["dimensions"]))


def _feeds_a_loop(shape: PatternView, i: int) -> bool:
    """Whether some user inside the pattern has several places per row, so that the value would be computed once per
    place; and none may want it of other rows, which a value computed once per row does not have.
    """
    graph, pattern = shape.graph, shape.pattern
    found = False
    for u in graph.users[i]:
        if u not in pattern.nodes or is_rematerializable(graph[u]):
            continue
        node = graph[u]
        if node.op == PARTIAL:
            continue
        if node.op == "reduce":
            found |= shape.operand_elements(node)[1] > 1
        elif u not in pattern.bindings:
            return False
        else:
            found |= shape.places(u) > 1
    return found
