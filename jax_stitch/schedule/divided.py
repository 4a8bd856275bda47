"""Patterns whose results have nothing in common: parts of their own, side by side in the launch.

An optimizer's tensors end in one pattern where they share a rate. On a GPU, one part of them all would take turns where
its rows are few, and each thread's registers for all that it reads or sums at once; and where some of them sum, lanes
of a row would have nothing to do at the others. On a CPU, all of a row would be one thread's; and tensors that are
alike would be compiled one by one, where parts that are alike are compiled once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import prod

from msgspec import Struct

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import inner_sizes
from jax_stitch.analysis.inputs_outputs import inputs_of
from jax_stitch.analysis.maps import MOVES
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.support import ROOTS
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.operations import HEAVY
from jax_stitch.schedule.alike import form_of
from jax_stitch.schedule.bodies import OF_HEAVY
from jax_stitch.schedule.split import TASK

MOST_READ = 16
"""Values for each row or place that a part reads from memory: with four rows a thread, 64 registers. One whose results
all depend on each other reads more.
"""

MOST_SUMS = 8
"""Reductions of a part."""

MOST_READ_ON = 4
"""Values that a part reads where its threads go on from rows to rows with sums of all: four rows at a time, and more
have no room beside the sums (``vectors.MOST_WITH_SUMS``); rows one at a time are loads of 4 bytes.
"""

SELECT = frozenset({"slice", "dynamic-slice", "gather"})
"""Moves that take some elements of their operand."""

LEAST_ALIKE = 128
"""Elements that one of several groups alike reads and writes on a CPU to be a block of its own: fewer take as long as a
block's start.
"""

SHARED = 8
"""Operations that results have in common for which they stay together: fewer are soon computed again."""


_SUMS = frozenset({*ROOTS, PARTIAL})


class _Group(Struct, frozen=True):
    """Some of a pattern's results, with all that they are computed from."""

    outputs: tuple[int, ...]
    inside: frozenset[int]
    reads: frozenset[int]
    """Arrays; where some of their elements are selected, what selects them."""

    def __or__(self, other: _Group) -> _Group:
        return _Group(self.outputs + other.outputs, self.inside | other.inside, self.reads | other.reads)


def divided(graph: Graph, pattern: Pattern, device: Device) -> Sequence[Pattern]:
    """Return the patterns that ``pattern`` becomes: itself alone, unless it reads or sums much that has nothing in
    common.
    """
    if pattern.loop is not None:
        return [pattern]
    vectors = device.target.lanes_are_vectors
    whole = _group(graph, pattern, pattern.outputs)
    if _fits(graph, whole) if not vectors else _elements(graph, whole) < 2 * LEAST_ALIKE:
        return [pattern]
    groups = sorted(_independent(graph, pattern), key=lambda g: _kind(graph, pattern, g))
    alone = _alike(graph, pattern, groups) if vectors else []
    fits = partial(_is_a_task if vectors else _fits, graph)
    rest = groupby((g for g in groups if g not in alone), lambda g: _kind(graph, pattern, g))
    gathered = [*alone, *(g for _, of_a_kind in rest for g in _gathered(of_a_kind, fits))]
    # What parts alike have in common is a copy in each, or the first would be another kernel.
    common = frozenset(n for n, times in Counter(n for g in alone for n in g.inside).items() if times > 1)
    return list(_patterns(graph, pattern, gathered, common)) if len(gathered) > 1 else [pattern]


def _elements(graph: Graph, group: _Group) -> int:
    types = (graph[i].type for i in (*group.reads, *group.outputs))
    return sum(t.size for t in types if isinstance(t, TensorType))


def _is_a_task(graph: Graph, group: _Group) -> bool:
    """Return whether a group is no more than a thread of a CPU is to have at a time."""
    return _elements(graph, group) <= TASK


def _alike(graph: Graph, pattern: Pattern, groups: Sequence[_Group]) -> list[_Group]:
    """Return the groups of which there are several that are computed alike, and that are worth a block each."""
    forms: dict[Hashable, list[_Group]] = {}
    for group in groups:
        form = form_of(graph, [*_patterns(graph, pattern, [group])])
        if form is not None and _elements(graph, group) >= LEAST_ALIKE:
            forms.setdefault(form.key, []).append(group)
    several = [alike for alike in forms.values() if len(alike) > 1]
    # The largest first: threads that take blocks in turn end at about the same time.
    return [g for alike in sorted(several, key=lambda a: -_elements(graph, a[0])) for g in alike]


def _fits(graph: Graph, group: _Group) -> bool:
    """Return whether the threads of a GPU's block have registers for a group."""
    sums = [graph[i].op for i in group.inside if graph[i].op in _SUMS]
    return len(group.reads) <= (MOST_READ_ON if PARTIAL in sums else MOST_READ) and len(sums) <= MOST_SUMS


def _group(graph: Graph, pattern: Pattern, outputs: Sequence[int]) -> _Group:
    inside, reads = set[int](), set[int]()
    waiting: list[tuple[int, int | None]] = [(o, None) for o in outputs]
    seen = set(waiting)
    while waiting:
        i, selected = waiting.pop()
        if i in pattern.inside:
            inside.add(i)
            op = graph[i].op
            below = i if op in SELECT else selected if op in MOVES else None
            new = {(o, below) for o in graph[i].operands} - seen
            seen |= new
            waiting += new
        elif not isinstance(graph[i].type, TensorType) or graph[i].tensor.size > 1:
            reads.add(i if selected is None else selected)
    return _Group(tuple(outputs), frozenset(inside), frozenset(reads))


def _independent(graph: Graph, pattern: Pattern) -> list[_Group]:
    """Return the results, apart where they read no array together and compute little."""
    groups: list[_Group] = []
    for output in pattern.outputs:
        group, others = _group(graph, pattern, [output]), list[_Group]()
        for other in groups:
            if other.reads & group.reads or _has_work(graph, pattern, other.inside & group.inside):
                group = other | group
            else:
                others.append(other)
        groups = [*others, group]
    return groups


def _has_work(graph: Graph, pattern: Pattern, nodes: frozenset[int]) -> bool:
    """Return whether what these compute for each row is too much to be done twice."""
    own = [graph[i] for i in nodes if i in pattern.bindings]
    if any(n.op in _SUMS for n in own):
        return True
    if pattern.rows == 1:  # A number is computed once, beside arrays.
        own = [n for n in own if not isinstance(n.type, TensorType) or n.tensor.size > 1]
    return sum(OF_HEAVY if n.op in HEAVY else 1 for n in own if n.op not in MOVES) >= SHARED


def _kind(graph: Graph, pattern: Pattern, group: _Group) -> tuple[bool, int]:
    """Return the kind of a group: whether it reduces, and the places of its longest pass. Groups of one kind do well in
    one part.
    """
    places = [prod(inner_sizes(pattern.bindings[i])) for i in group.inside | group.reads if i in pattern.bindings]
    return any(graph[i].op in _SUMS for i in group.inside), max(places, default=1)


def _gathered(groups: Iterator[_Group], fits: Callable[[_Group], bool]) -> Iterator[_Group]:
    """Yield neighbours together, as many as fit."""
    current: _Group | None = None
    for group in groups:
        together = group if current is None else current | group
        if current is not None and not fits(together):
            yield current
            together = group
        current = together
    if current is not None:
        yield current


def _patterns(
    graph: Graph, pattern: Pattern, groups: Sequence[_Group], common: frozenset[int] = frozenset()
) -> Iterator[Pattern]:
    taken = common | set(pattern.outputs)
    for group in groups:  # Each has its own results, which others may compute on their way.
        nodes = (group.inside & pattern.nodes) - taken | set(group.outputs)
        taken |= nodes
        inputs = inputs_of(graph, group.inside)
        read = {o for i in group.inside for o in graph[i].operands}  # An iota too, which is no input.
        yield replace(
            pattern,
            nodes=nodes,
            bindings={i: b for i, b in pattern.bindings.items() if i in group.inside or i in read},
            inputs=inputs,
            outputs=tuple(sorted(group.outputs)),
            copies=group.inside - nodes,
        )
