"""What each stage of a part evaluates: its roots, the elements they need, and the buffers these come from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from jax_stitch.analysis.accesses import Element, Walk
from jax_stitch.analysis.binding import position_in
from jax_stitch.analysis.locality import Inside, walk_row
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.graph import sorts
from jax_stitch.graph.model import Graph
from jax_stitch.graph.scans import scan_of
from jax_stitch.schedule.model import KeptReduceStage, LoopStage, RowStage, SortStage, Stage
from jax_stitch.schedule.stages import PatternView, results_of


def stored_values(shape: PatternView, stages: Sequence[Stage]) -> frozenset[int]:
    """Everything that is kept for all threads of a row: results of reductions and sorts, and values of whole rows."""
    found: set[int] = set()
    graph = shape.graph
    for s in stages:
        reduces: tuple[int, ...] = ()
        if isinstance(s, RowStage):
            found.update(s.keeps)
        elif isinstance(s, LoopStage):
            reduces = s.reduces
        elif isinstance(s, SortStage):
            found.update(i for i in sorts.results_of(graph, graph[s.sort]) if i >= 0)
        else:
            reduces = (s.reduce,)
        for r in reduces:
            found.update(i for i in results_of(graph, graph[r]) if i >= 0)
    return frozenset(found)


def kept_for_their_row(shape: PatternView, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages, less the values of whole rows that other rows read too, by way of what is computed where it is read:
    they are recomputed there, and so everywhere.
    """
    keeps = {i for s in stages if isinstance(s, RowStage) for i in s.keeps}
    if not keeps:
        return tuple(stages)
    stored = stored_values(shape, stages) - keeps
    bindings = shape.pattern.bindings
    read = {e for s in stages for e in walk_stage(shape, s, stored, ()).computed if e[0] in keeps}
    keeps -= {i for i, at in read if position_in(bindings[i], shape.row, at) is None}
    found = [
        replace(s, keeps=tuple(i for i in s.keeps if i in keeps)) if isinstance(s, RowStage) else s for s in stages
    ]
    return tuple(s for s in found if not isinstance(s, RowStage) or s.keeps or s.stores or s.partials)


def places_of(shape: PatternView, stage: Stage) -> int:
    if isinstance(stage, LoopStage | SortStage):
        return stage.size
    if isinstance(stage, KeptReduceStage):
        return stage.kept
    return 1


def roots_of(shape: PatternView, stage: Stage) -> Iterator[Element]:
    """The elements a stage evaluates, in terms of row and place."""
    graph = shape.graph
    if isinstance(stage, KeptReduceStage):
        index = shape.kept_elements(stage)
        for o in reduced_operands(graph, stage.reduce):
            yield o, index
        return
    if isinstance(stage, SortStage):
        for o in sorts.fields_of(graph[stage.sort]):
            yield o, shape.value_elements(stage.sort)[0]
        return
    if isinstance(stage, RowStage):
        for i in (*stage.keeps, *stage.stores):
            yield i, shape.value_elements(i)[0]
        partials: tuple[int, ...] = stage.partials
    else:
        for i in stage.stores:
            yield i, shape.value_elements(i)[0]
        partials = (*stage.reduces, *stage.partials)
    for i in partials:
        index, _ = shape.operand_elements(graph[i])
        for o in reduced_operands(graph, i):
            yield o, index


def reduced_operands(graph: Graph, reduce: int) -> tuple[int, ...]:
    operands = graph[reduce].operands
    return operands[: len(operands) // 2]


def walk_stage(shape: PatternView, stage: Stage, stored: Collection[int], kept: Sequence[Element]) -> Walk:
    """Everything a stage evaluates."""
    visited: dict[Element, bool] = {}
    loads: dict[Element, bool] = {}
    found: dict[Element, bool] = {}
    available = frozenset(kept)
    inside = Inside(shape.graph, shape.pattern.inside, shape.pattern.bindings, stored, shape.row)
    for root in roots_of(shape, stage):
        expand_start = isinstance(stage, RowStage) and root[0] in stage.keeps
        w = walk_row(inside, root, available, expand_start=expand_start)
        for all_, own in ((visited, w.computed), (loads, w.loaded), (found, w.cached)):
            for e, always in own.items():
                all_[e] = all_.get(e, False) or always
    return Walk(visited, loads, found)


def transfers(
    shape: PatternView, stages: Sequence[Stage], walks: Sequence[Walk]
) -> Iterator[tuple[Index, tuple[int, ...], int]]:
    graph = shape.graph
    for s, w in zip(stages, walks, strict=True):
        for i, index in w.loaded:
            yield index, graph[i].tensor.dims, node_bytes(graph[i])
        if isinstance(s, RowStage | LoopStage):
            for i in s.stores:
                yield shape.value_elements(i)[0], graph[i].tensor.dims, node_bytes(graph[i])


def with_scans(shape: PatternView, stages: Sequence[Stage], stored: Collection[int]) -> tuple[Stage, ...]:
    """The stages with the scans that each goes through: those it does not find kept."""
    found: list[Stage] = []
    for s in stages:
        if isinstance(s, LoopStage):
            visited = {i for i, _ in walk_stage(shape, s, stored, s.uses).computed}
            s = replace(s, scans=tuple(sorted(i for i in visited if scan_of(shape.graph, shape.graph[i]))))
        found.append(s)
    return tuple(found)
