"""Kernels that are alike are scheduled once: the layers of a model, the tensors of an optimizer."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.graph.form import node_form
from jax_stitch.graph.model import Graph
from jax_stitch.schedule.model import (
    InnerReducePass,
    LoopPass,
    OncePass,
    Part,
    RowPass,
    ScheduledKernel,
    SortPass,
    Storage,
)
from jax_stitch.util.values import replace

_NAMES_ITS_NODE = frozenset({"dynamic-slice", "dynamic-update-slice", "gather"})
"""Indices that such a node is read at have variables that are named for it."""


@dataclass(frozen=True)
class Form:
    """What a kernel's schedule and text depend on, and its nodes in the order in which they stand there."""

    key: Hashable
    nodes: tuple[int, ...]


def form_of(graph: Graph, kernel: Sequence[Pattern]) -> Form | None:
    """Return the form of a kernel of ``graph``: another of the same ``key`` has the same schedule, with its own nodes
    in the place of these. None for kernels that are scheduled each by itself: loops, and what reads at indices that are
    data.
    """
    if any(p.loop is not None for p in kernel):
        return None
    inside = {i for p in kernel for i in p.inside}
    if any(graph[i].op in _NAMES_ITS_NODE for i in inside):
        return None
    nodes = _in_order(graph, kernel, inside)
    local = {i: k for k, i in enumerate(nodes)}
    made = tuple(node_form(graph[i], [local[o] for o in graph[i].operands] if i in inside else ()) for i in nodes)
    # A kernel's parameters are in the order of their numbers.
    read = tuple(local[i] for i in sorted({i for p in kernel for i in p.inputs}))
    written = tuple(local[i] for i in sorted({i for p in kernel for i in p.outputs}))
    return Form((made, read, written, tuple(_pattern_form(p, local) for p in kernel)), nodes)


def outline(kernel: Sequence[Pattern]) -> Hashable:
    """Return what is seen of a kernel's form at a glance: kernels with different outlines are not alike."""
    return tuple(
        (p.rows, p.blocks, p.phase, len(p.nodes), len(p.copies), len(p.inputs), len(p.outputs), p.loop is None)
        for p in kernel
    )


def _in_order(graph: Graph, kernel: Sequence[Pattern], inside: Collection[int]) -> tuple[int, ...]:
    """Return what is written, each after what it reads: the same for kernels alike, whose nodes have the numbers in
    which they happened to be made.
    """
    ordered: dict[int, None] = {}
    for pattern in kernel:
        waiting = [*sorted(pattern.inside, reverse=True), *reversed(pattern.outputs)]
        while waiting:
            i = waiting[-1]
            operands = graph[i].operands if i in inside else ()
            if i in ordered or all(o in ordered for o in operands):
                ordered[waiting.pop()] = None
            else:
                waiting += [o for o in reversed(operands) if o not in ordered]
    return tuple(ordered)


def _pattern_form(pattern: Pattern, local: Mapping[int, int]) -> Hashable:
    renumbered = pattern.renumbered(local)
    return (
        renumbered.nodes,
        renumbered.copies,
        renumbered.rows,
        tuple(sorted(renumbered.bindings.items())),
        renumbered.inputs,
        renumbered.outputs,
        renumbered.blocks,
        renumbered.phase,
    )


def moved_to(kernel: ScheduledKernel, name: str, graph: Graph, ids: Mapping[int, int]) -> ScheduledKernel:
    """Return the same schedule of a kernel alike in ``graph``, whose node ``ids[i]`` is in the place of node ``i``."""
    return replace(kernel, name=name, graph=graph, parts=tuple(_part(p, ids) for p in kernel.parts))


def _part(part: Part, ids: Mapping[int, int]) -> Part:
    def moved(storage: Storage) -> Storage:
        return replace(storage, node=ids[storage.node])

    return replace(
        part,
        pattern=part.pattern.renumbered(ids),
        passes=tuple(_row_pass(s, ids) for s in part.passes),
        storage={ids[i]: moved(s) for i, s in part.storage.items()},
        own_storage={(ids[i], index): moved(s) for (i, index), s in part.own_storage.items()},
    )


def _row_pass(row_pass: RowPass, ids: Mapping[int, int]) -> RowPass:
    def moved(nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(ids[i] for i in nodes)

    match row_pass:
        case OncePass(caches, writes, partials):
            return OncePass(moved(caches), moved(writes), moved(partials))
        case LoopPass():
            return replace(
                row_pass,
                reduces=moved(row_pass.reduces),
                writes=moved(row_pass.writes),
                partials=moved(row_pass.partials),
                caches=tuple((ids[i], index) for i, index in row_pass.caches),
                uses=tuple((ids[i], index) for i, index in row_pass.uses),
                scans=moved(row_pass.scans),
                keeps=moved(row_pass.keeps),
            )
        case InnerReducePass():
            return replace(row_pass, reduce=ids[row_pass.reduce], beside=moved(row_pass.beside))
        case SortPass():
            return replace(row_pass, sort=ids[row_pass.sort])
