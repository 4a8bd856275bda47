"""Row stages that share nothing, one after the other: the tensors of an optimizer that ended in one pattern.

A loop over rows that reads dozens of buffers at once is more than a CPU fetches ahead or has registers for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jax_stitch.analysis.accesses import Element
from jax_stitch.schedule.model import RowStage, Stage
from jax_stitch.schedule.stages import PatternView
from jax_stitch.schedule.walks import walk_stage


def separate(shape: PatternView, stages: Sequence[Stage], stored: Collection[int]) -> tuple[Stage, ...]:
    """The stages, with row stages split into those that read nothing in common from memory or from each
    other.
    """
    found: list[Stage] = []
    for s in stages:
        found += _components(shape, s, stored) if isinstance(s, RowStage) else [s]
    return tuple(found)


def _components(shape: PatternView, stage: RowStage, stored: Collection[int]) -> list[RowStage]:
    roots = [RowStage((i,), (), ()) for i in stage.keeps]
    roots += [RowStage((), (i,), ()) for i in stage.stores]
    roots += [RowStage((), (), (i,)) for i in stage.partials]
    groups: list[tuple[RowStage, set[Element | int]]] = []
    for root in roots:
        walk = walk_stage(shape, root, stored, ())
        # What is the same for all rows is computed once before them. A kept value goes with those that read it.
        needs: set[Element | int] = {e for e in walk.loaded if any(d.variables() for d in e[1])}
        needs |= {*root.keeps, *(i for i, _ in walk.cached)}
        joined, apart = root, list[tuple[RowStage, set[Element | int]]]()
        for group, own in groups:
            if own & needs:
                joined, needs = _both(group, joined), own | needs
            else:
                apart.append((group, own))
        groups = [*apart, (joined, needs)]
    return [group for group, _ in groups]


def _both(a: RowStage, b: RowStage) -> RowStage:
    return RowStage(a.keeps + b.keeps, a.stores + b.stores, a.partials + b.partials)
