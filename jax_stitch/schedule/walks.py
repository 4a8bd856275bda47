"""What each pass of a part evaluates: its roots, the elements they need, and the buffers these come from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from jax_stitch.analysis.accesses import Element, Walk
from jax_stitch.analysis.binding import position_in
from jax_stitch.analysis.locality import Inside, walk_row
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.graph import sorts
from jax_stitch.graph.model import Graph
from jax_stitch.graph.scans import scan_of
from jax_stitch.schedule.model import InnerReducePass, LoopPass, OncePass, RowPass, SortPass
from jax_stitch.schedule.row_passes import PatternView, results_of
from jax_stitch.util.values import replace


def cached_values(shape: PatternView, passes: Sequence[RowPass]) -> frozenset[int]:
    """Return all that is cached for all threads of a row: results of reductions and sorts, and values of whole rows."""
    cached: set[int] = set()
    graph = shape.graph
    for s in passes:
        reduces: tuple[int, ...] = ()
        if isinstance(s, OncePass):
            cached.update(s.caches)
        elif isinstance(s, LoopPass):
            reduces = s.reduces
            cached.update(s.keeps)
        elif isinstance(s, SortPass):
            cached.update(i for i in sorts.results_of(graph, graph[s.sort]) if i >= 0)
        else:
            reduces = s.reduces
        for r in reduces:
            cached.update(i for i in results_of(graph, graph[r]) if i >= 0)
    return frozenset(cached)


def cached_for_their_row(shape: PatternView, passes: Sequence[RowPass]) -> tuple[RowPass, ...]:
    """Return the passes, less the values of whole rows that other rows read too, by way of what is computed where it is
    read: they are recomputed there, and so everywhere.
    """
    caches = {i for s in passes if isinstance(s, OncePass) for i in s.caches}
    if not caches:
        return tuple(passes)
    cached = cached_values(shape, passes) - caches
    bindings = shape.pattern.bindings
    read = {e for s in passes for e in walk_pass(shape, s, cached, ()).computed if e[0] in caches}
    caches -= {i for i, at in read if position_in(bindings[i], shape.row, at) is None}
    remaining = [
        replace(s, caches=tuple(i for i in s.caches if i in caches)) if isinstance(s, OncePass) else s for s in passes
    ]
    return tuple(s for s in remaining if not isinstance(s, OncePass) or s.caches or s.writes or s.partials)


def places_of(shape: PatternView, row_pass: RowPass) -> int:
    if isinstance(row_pass, LoopPass | SortPass):
        return row_pass.size
    if isinstance(row_pass, InnerReducePass):
        return row_pass.size
    return 1


def roots_of(shape: PatternView, row_pass: RowPass) -> Iterator[Element]:
    """Return the elements that a pass evaluates, in terms of row and place."""
    graph = shape.graph
    if isinstance(row_pass, InnerReducePass):
        index = shape.inner_reduce_elements(row_pass)
        for i in row_pass.reduces:
            for o in reduced_operands(graph, i):
                yield o, index
        return
    if isinstance(row_pass, SortPass):
        for o in sorts.fields_of(graph[row_pass.sort]):
            yield o, shape.value_elements(row_pass.sort)[0]
        return
    if isinstance(row_pass, OncePass):
        for i in (*row_pass.caches, *row_pass.writes):
            yield i, shape.value_elements(i)[0]
        partials: tuple[int, ...] = row_pass.partials
    else:
        for i in (*row_pass.keeps, *row_pass.writes):
            yield i, shape.value_elements(i)[0]
        partials = (*row_pass.reduces, *row_pass.partials)
    for i in partials:
        index, _ = shape.operand_elements(graph[i])
        for o in reduced_operands(graph, i):
            yield o, index


def reduced_operands(graph: Graph, reduce: int) -> tuple[int, ...]:
    operands = graph[reduce].operands
    return operands[: len(operands) // 2]


def walk_pass(
    shape: PatternView, row_pass: RowPass, cached_nodes: Collection[int], own_cached: Sequence[Element]
) -> Walk:
    """Return all that a pass evaluates; ``cached_nodes`` are whole values, ``own_cached`` elements at lanes' places."""
    made: tuple[int, ...] = ()
    if isinstance(row_pass, OncePass | LoopPass):
        made = row_pass.caches if isinstance(row_pass, OncePass) else row_pass.keeps
    return _walk(shape, roots_of(shape, row_pass), cached_nodes, own_cached, made)


def walk_starts(shape: PatternView, row_pass: RowPass, cached_nodes: Collection[int]) -> Walk:
    """Return everything that a pass evaluates, once, to know what its reductions and scans start from."""
    graph = shape.graph
    starting: tuple[int, ...] = ()
    if isinstance(row_pass, InnerReducePass | LoopPass):
        starting = row_pass.reduces
    if isinstance(row_pass, LoopPass):
        starting = (*starting, *row_pass.scans)
    roots = ((o, ()) for i in starting for o in graph[i].operands[len(graph[i].operands) // 2 :])
    return _walk(shape, roots, cached_nodes, (), ())


def _walk(
    shape: PatternView,
    roots: Iterable[Element],
    cached_nodes: Collection[int],
    own_cached: Sequence[Element],
    made: Collection[int],
) -> Walk:
    computed: dict[Element, bool] = {}
    loaded: dict[Element, bool] = {}
    cached: dict[Element, bool] = {}
    available = frozenset(own_cached)
    inside = Inside(shape.graph, shape.pattern.inside, shape.pattern.bindings, cached_nodes, shape.row)
    for root in roots:
        expand_start = root[0] in made
        w = walk_row(inside, root, available, expand_start=expand_start)
        for all_, own in ((computed, w.computed), (loaded, w.loaded), (cached, w.cached)):
            for e, always in own.items():
                all_[e] = all_.get(e, False) or always
    return Walk(computed, loaded, cached)


def transfers(
    shape: PatternView, passes: Sequence[RowPass], walks: Sequence[Walk]
) -> Iterator[tuple[Index, tuple[int, ...], int]]:
    graph = shape.graph
    for s, w in zip(passes, walks, strict=True):
        for i, index in w.loaded:
            yield index, graph[i].tensor.dims, node_bytes(graph[i])
        if isinstance(s, OncePass | LoopPass):
            for i in s.writes:
                yield shape.value_elements(i)[0], graph[i].tensor.dims, node_bytes(graph[i])


def with_scans(shape: PatternView, passes: Sequence[RowPass], cached: Collection[int]) -> tuple[RowPass, ...]:
    """Return the passes with the scans that each goes through: those it does not find cached."""
    changed: list[RowPass] = []
    for s in passes:
        if isinstance(s, LoopPass):
            visited = {i for i, _ in walk_pass(shape, s, cached, s.uses).computed}
            s = replace(s, scans=tuple(sorted(i for i in visited if scan_of(shape.graph, shape.graph[i]))))
        changed.append(s)
    return tuple(changed)
