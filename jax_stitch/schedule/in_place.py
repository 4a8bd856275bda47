"""Results written where an input was that nobody reads afterwards, as XLA's own kernels do.

It halves the memory of an update, and on a CPU the first touch of fresh memory takes longer than a kernel's work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from jax_stitch.explore.binding import Binding
from jax_stitch.explore.locality import Element
from jax_stitch.explore.pattern import Pattern
from jax_stitch.graph.model import Graph
from jax_stitch.schedule.model import KeptReduceStage, LoopStage, RowStage, ScheduledKernel, Split, Stage, Updates
from jax_stitch.schedule.stages import Shape
from jax_stitch.schedule.walks import walk_stage

_VIEWS = frozenset({"bitcast", "reshape"})

_NOT_OWNERS = frozenset(
    {"parameter", "constant", "iota", "get-tuple-element", "tuple", "while", "conditional", "call"}
    | {"optimization-barrier", "copy", "convert"}
)
"""Operations whose value may lie in memory that somebody else owns, or that XLA makes where it is read: a kernel that
writes there would have it copied first.
"""


def dying(graph: Graph, kernels: Sequence[Sequence[Pattern]]) -> frozenset[int]:
    """The values that one of ``kernels`` reads and nothing else, in memory of their own."""
    inside = {i for kernel in kernels for p in kernel for i in p.nodes}
    readers = Counter(i for kernel in kernels for i in {i for p in kernel for i in p.inputs})
    results = frozenset(graph.results)

    def owned(i: int) -> bool:
        if graph[i].op not in _VIEWS:
            return graph[i].op not in _NOT_OWNERS
        (base,) = graph[i].operands
        return base not in results and not readers[base] and set(graph.users[base]) == {i} and owned(base)

    return frozenset(
        i
        for i, count in readers.items()
        if count == 1 and i not in results and all(u in inside for u in graph.users[i]) and owned(i)
    )


def updates(shape: Shape, stages: Sequence[Stage], stored: Mapping[int, Binding], split: Split) -> Updates:
    """For what a part writes, the inputs of the same type that it reads nowhere but where it writes, by the same thread
    and not afterwards.
    """
    graph = shape.graph
    loads = [_loads(shape, s, stored) for s in stages]
    found: dict[int, tuple[int, ...]] = {}
    for k, stage in enumerate(stages):
        # A thread has a row's place to itself, and the row where it has all places.
        if isinstance(stage, KeptReduceStage) or (isinstance(stage, RowStage) and split.lanes > 1):
            continue
        passes = {n for n in range(k + 1) if _same_places(stages[n], stage)}
        for o in stage.stores:
            index = shape.value_elements(o)[0]
            elsewhere = {i for n, own in enumerate(loads) for i, at in own if n not in passes or at != index}
            inputs = {i for n in passes for i, _ in loads[n] if graph[i].type == graph[o].type} - elsewhere
            if inputs:
                found[o] = tuple(sorted(inputs))
    return found


def _loads(shape: Shape, stage: Stage, stored: Mapping[int, Binding]) -> Collection[Element]:
    return walk_stage(shape, stage, stored, stage.uses if isinstance(stage, LoopStage) else ()).loads


def _same_places(a: Stage, b: Stage) -> bool:
    """Whether a thread has the same places in two stages."""
    if isinstance(a, LoopStage) and isinstance(b, LoopStage):
        return a.size == b.size and not a.scans and not b.scans
    return isinstance(a, RowStage) and isinstance(b, RowStage)


def in_place(kernel: ScheduledKernel, dying: Collection[int]) -> ScheduledKernel:
    """The kernel with as many results as can be written where a ``dying`` input was, that no other part reads."""
    readers = Counter(i for p in kernel.parts for i in p.pattern.inputs)
    left = {i for i in kernel.inputs if i in dying and readers[i] == 1}
    found: dict[int, int] = {}
    for part in kernel.parts:
        for o, inputs in part.updates.items():
            for i in inputs:
                if i in left and o not in found:
                    found[o] = i
                    left.remove(i)
    return replace(kernel, in_place=found)
