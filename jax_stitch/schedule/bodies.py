"""Passes whose body is long, cut into several over the same places.

A host compiler looks at each pair of a loop's accesses: a body of hundreds of stores takes it minutes and gigabytes.
What is read lies in the cache when the next pass comes to it. On a GPU a pass with many sums takes many registers, with
what each of them reads for several places under way: those that read nothing in common are passes of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from jax_stitch.analysis.accesses import Element
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.operations import HEAVY
from jax_stitch.schedule.model import LoopStage, RowStage, Stage
from jax_stitch.schedule.stages import PatternView
from jax_stitch.schedule.walks import walk_stage

LONGEST = 256
"""Statements of a body, about: those of g++ 12 take a second, of twice as many three."""

_OF_HEAVY = 4
"""How many statements an exponential counts as."""

_MOST_AGAIN = 4
"""A cut that has the next pass compute a larger part of such a body once more, one in so many, is not made."""

MOST_SUMS = 8
"""Of a pass of a GPU whose sums read nothing in common."""


def few_sums(shape: PatternView, stages: Sequence[Stage], stored: Collection[int]) -> tuple[Stage, ...]:
    """The stages, with passes of many sums cut into several where these read nothing in common from memory."""
    found: list[Stage] = []
    for stage in stages:
        many = isinstance(stage, LoopStage) and len(stage.reduces) > MOST_SUMS and not stage.partials
        found += _apart(shape, stage, stored) if isinstance(stage, LoopStage) and many else [stage]
    return tuple(found)


def _apart(shape: PatternView, stage: LoopStage, stored: Collection[int]) -> Iterator[Stage]:
    alike: list[tuple[list[RowStage | LoopStage], set[Element]]] = []
    for root in _roots(stage):
        reads = {e for e in walk_stage(shape, root, stored, ()).loaded if any(d.variables() for d in e[1])}
        roots, others = list[RowStage | LoopStage](), list[tuple[list[RowStage | LoopStage], set[Element]]]()
        for group, own in alike:
            if own & reads:
                roots, reads = roots + group, own | reads
            else:
                others.append((group, own))
        alike = [*others, ([*roots, root], reads)]
    groups: list[list[RowStage | LoopStage]] = [[]]
    for roots, _ in alike:
        if groups[-1] and len(groups[-1]) + len(roots) > MOST_SUMS:
            groups.append([])
        groups[-1] += roots
    return (_joined(group) for group in groups)


def short_bodies(shape: PatternView, stages: Sequence[Stage], stored: Collection[int]) -> tuple[Stage, ...]:
    """The stages, with those whose body is long in pieces: each has some of its stores and reductions."""
    found: list[Stage] = []
    for stage in stages:
        found += _cut(shape, stage, stored) if isinstance(stage, RowStage | LoopStage) else [stage]
    return tuple(found)


def _cut(shape: PatternView, stage: RowStage | LoopStage, stored: Collection[int]) -> Iterator[Stage]:
    roots = list(_roots(stage))
    if len(roots) < 2 or stage.partials:
        return iter([stage])
    groups: list[list[RowStage | LoopStage]] = [[]]
    together: set[Element] = set()
    for root in roots:
        own = {e for e in walk_stage(shape, root, stored, ()).computed if not is_rematerializable(shape.graph[e[0]])}
        if (
            groups[-1]
            and _statements(shape, together | own) > LONGEST
            and _statements(shape, together & own) * _MOST_AGAIN <= LONGEST
        ):
            groups.append([])
            together = set()
        groups[-1].append(root)
        together |= own
    return (_joined(group) for group in groups)


def _roots(stage: RowStage | LoopStage) -> Iterator[RowStage | LoopStage]:
    """A stage for each value that a pass stores or reduces."""
    if isinstance(stage, RowStage):
        yield from (RowStage((i,), (), ()) for i in stage.keeps)
        yield from (RowStage((), (i,), ()) for i in stage.stores)
        return
    yield from (replace(stage, reduces=(i,), stores=()) for i in stage.reduces)
    yield from (replace(stage, reduces=(), stores=(i,)) for i in stage.stores)


def _joined(group: Sequence[RowStage | LoopStage]) -> Stage:
    first = group[0]
    stores = tuple(i for s in group for i in s.stores)
    if isinstance(first, RowStage):
        return RowStage(tuple(i for s in group if isinstance(s, RowStage) for i in s.keeps), stores, ())
    return replace(first, reduces=tuple(i for s in group if isinstance(s, LoopStage) for i in s.reduces), stores=stores)


def _statements(shape: PatternView, elements: Collection[Element]) -> int:
    return sum(_OF_HEAVY if shape.graph[i].op in HEAVY else 1 for i, _ in elements)
