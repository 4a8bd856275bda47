"""Checks that a kernel's straight code reads what HLO says, and reduces, scans and sorts along the axis that it names.

The elements that a row pass reads are followed through the graph once more, and compared with the loads in the kernel
language; the lengths of its passes are compared with those of HLO's dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import prod
from typing import Any

from jax_stitch.analysis.binding import index_of
from jax_stitch.graph.scans import scan_of
from jax_stitch.graph.sorts import sort_of
from jax_stitch.ir.indices import Expr, linearize
from jax_stitch.ir.indices.expr import Var
from jax_stitch.ir.indices.variables import BATCH, PLACE, ROW, RUN, TERM, place_index, row_index
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Ref
from jax_stitch.kernel.verify import Finding
from jax_stitch.kernel.walk import nodes, renamed
from jax_stitch.schedule.model import InnerReducePass, LoopPass, Part, ScheduledKernel, SortPass
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.walks import cached_values, walk_pass, walk_starts

LOOPS = frozenset({ROW, BATCH, PLACE, RUN, TERM})
"""Variables that mean the same in the kernel and in HLO's terms; others stand for data."""

Load = tuple[int, str]
"""An element that is read: a node, and the position in it."""


def axis_findings(kernel: ScheduledKernel, made: model.Kernel) -> Iterator[Finding]:
    """Yield where a kernel and its HLO differ."""
    for part, written in zip(kernel.parts, made.parts, strict=True):
        if part.pattern.loop is None:
            shape = PatternView(kernel.graph, part.pattern, row_index(part.split.rows, part.split.period), part.periods)
            yield from _loads(shape, part, written)
            yield from _lengths(shape, part, written)


def _loads(shape: PatternView, part: Part, written: model.Part) -> Iterator[Finding]:
    cached = cached_values(shape, part.passes)
    wanted: set[tuple[int, Expr]] = set()
    for s in part.passes:
        own = s.uses if isinstance(s, LoopPass) else ()
        walks = [walk_pass(shape, s, cached, own), walk_starts(shape, s, cached)]
        for i, index in chain.from_iterable(w.loaded for w in walks):
            wanted.add((i, linearize(index, shape.graph[i].tensor.dims)))
    inputs = dict(zip((p.name for p in written.parameters), part.pattern.inputs, strict=False))
    copies = _copies(written, inputs)
    loaded: set[tuple[int, Expr]] = set()
    for statement in (*written.before, *written.body, *written.after):
        for node in nodes(statement):
            if isinstance(node, Element) and node.array in inputs:
                loaded.add((inputs[node.array], node.at))
            elif isinstance(node, Element) and node.array in copies:
                i = copies[node.array]
                index = index_of(shape.pattern.bindings[i], shape.row, node.at)
                loaded.add((i, linearize(index, shape.graph[i].tensor.dims)))
    if loaded != wanted:
        yield from _differences(_named(wanted), _named(loaded), written.name)


def _named(loads: Iterable[tuple[int, Expr]]) -> set[Load]:
    return {(i, _position(at)) for i, at in loads}


def _differences(wanted: set[Load], loaded: set[Load], name: str) -> Iterator[Finding]:
    for i, at in sorted(loaded - wanted):
        yield Finding(name, f"element {at} of %{i} is read, which HLO does not read")
    for i, at in sorted(wanted - loaded):
        yield Finding(name, f"element {at} of %{i} is not read, which HLO reads")


def _copies(written: model.Part, inputs: Mapping[str, int]) -> dict[str, int]:
    """Return the arrays in shared memory that rows of inputs are copied to, and these inputs."""
    copying = (s for s in written.body if isinstance(s, st.Pass) and s.fetches)
    moves = (n for s in copying for n in nodes(s) if isinstance(n, st.Assign))
    return {
        m.target.name: inputs[m.value.array]
        for m in moves
        if isinstance(m.target, Ref) and isinstance(m.value, Element)
    }


def _position(at: Expr) -> str:
    """Return a position as text, the same for indices that differ in the names of data and in the order of their
    terms.
    """
    plain = renamed(at, lambda v: v if v.name in LOOPS else Var("data", v.low, v.high))
    return " + ".join([*sorted(f"{atom} * {c}" for atom, c in plain.terms), str(plain.offset)])


def _lengths(shape: PatternView, part: Part, written: model.Part) -> Iterator[Finding]:
    """Yield the lengths of the passes, in order."""
    graph = shape.graph
    scopes = iter([s for s in written.body if isinstance(s, st.Scope)])
    sorts = iter([s for s in written.body if isinstance(s, st.Apply) and s.intrinsic == "sort"])
    for s in part.passes:
        if isinstance(s, SortPass):
            sort, made = sort_of(graph, graph[s.sort]), next(sorts, None)
            along = shape.value_elements(s.sort)[0][sort.dimension] if sort else None
            if sort is None or made is None or made.sizes[0] != sort.size or along != _place(shape, sort.size):
                yield Finding(written.name, f"the sort %{s.sort} is not along the dimension that HLO names")
        elif isinstance(s, InnerReducePass):
            made_of = next(scopes, None)
            for r in s.reduces:
                dims = graph[graph[r].operands[0]].tensor.dims
                length = prod(dims[d] for d in graph[r].attributes["dimensions"])
                if (_passed(made_of) if s.along else _steps(made_of) * s.shares) != length:
                    yield Finding(written.name, f"the reduction %{r} is not over {length} elements")
        elif isinstance(s, LoopPass) and (s.reduces or s.scans):
            made_of = next(scopes, None)
            sizes = [n.size for n in made_of.body if isinstance(n, st.Pass | st.ScanPass)] if made_of else []
            yield from _of_pass(shape, part, s, written.name, made_of, sizes)


def _of_pass(
    shape: PatternView, part: Part, s: LoopPass, name: str, made: st.Scope | None, sizes: list[int]
) -> Iterator[Finding]:
    graph = shape.graph
    for i in s.reduces:
        elements = graph[graph[i].operands[0]].tensor.size
        if sizes != [elements // part.split.rows]:
            yield Finding(name, f"the reduction %{i} is not over {elements // part.split.rows} elements")
    for i in s.scans:
        scan = scan_of(graph, graph[i])
        backward = [n.backward for n in made.body if isinstance(n, st.ScanPass)] if made else []
        along = shape.value_elements(i)[0][scan.dimension] if scan else None
        length = graph[i].tensor.dims[scan.dimension] if scan else 0
        if scan is None or sizes != [length] or backward != [scan.backward] or along != _place(shape, length):
            yield Finding(name, f"the scan %{i} is not along the dimension that HLO names, or the other way")


def _place(shape: PatternView, size: int) -> Expr:
    return place_index(size, shape.periods.get(size))


def _steps(made: st.Scope | None) -> int:
    """Return how many elements an inner reduction takes for each place that it leaves."""
    whole = made.body if made else ()
    first = next((k for k, n in enumerate(whole) if isinstance(n, st.Barrier)), len(whole))
    loops: list[Any] = [n for n in nodes(st.Scope(whole[:first])) if isinstance(n, st.For)]
    return max((stop.high for n in loops[-1:] for stop in n.stops[-1:]), default=0)


def _passed(made: st.Scope | None) -> int:
    """Return the places of the pass of one whose lanes go along what is reduced."""
    passes = [n for n in nodes(made) if isinstance(n, st.Pass)] if made else []
    return passes[0].size if len(passes) == 1 else 0
