"""Passes of whole rows that share nothing, one after the other: the tensors of an optimizer that ended in one pattern.

A loop over rows that reads dozens of buffers at once is more than a CPU fetches ahead or has registers for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jax_stitch.analysis.accesses import Element
from jax_stitch.schedule.model import OncePass, RowPass
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.walks import walk_pass


def separate(shape: PatternView, passes: Sequence[RowPass], cached: Collection[int]) -> tuple[RowPass, ...]:
    """Return the passes, with those of whole rows split into those that read nothing in common, in memory or of each
    other.
    """
    separated: list[RowPass] = []
    for s in passes:
        separated += _components(shape, s, cached) if isinstance(s, OncePass) else [s]
    return tuple(separated)


def _components(shape: PatternView, row_pass: OncePass, cached: Collection[int]) -> list[OncePass]:
    roots = [OncePass((i,), (), ()) for i in row_pass.caches]
    roots += [OncePass((), (i,), ()) for i in row_pass.writes]
    roots += [OncePass((), (), (i,)) for i in row_pass.partials]
    groups: list[tuple[OncePass, set[Element | int]]] = []
    for root in roots:
        walk = walk_pass(shape, root, cached, ())
        # What is the same for all rows is computed once before them. A cached value goes with those that read it.
        needs: set[Element | int] = {e for e in walk.loaded if any(d.variables() for d in e[1])}
        needs |= {*root.caches, *(i for i, _ in walk.cached)}
        joined, apart = root, list[tuple[OncePass, set[Element | int]]]()
        for group, own in groups:
            if own & needs:
                joined, needs = _both(group, joined), own | needs
            else:
                apart.append((group, own))
        groups = [*apart, (joined, needs)]
    return [group for group, _ in groups]


def _both(a: OncePass, b: OncePass) -> OncePass:
    return OncePass(a.caches + b.caches, a.writes + b.writes, a.partials + b.partials)
