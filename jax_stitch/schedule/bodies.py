"""Passes whose body is long, divided into several over the same places.

A host compiler looks at each pair of a loop's accesses: a body of hundreds of stores takes it minutes and gigabytes.
What is read lies in the cache when the next pass comes to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from jax_stitch.analysis.accesses import Element
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.ir.operations import HEAVY
from jax_stitch.schedule.model import LoopPass, OncePass, RowPass
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.walks import walk_pass
from jax_stitch.util.values import replace

LONGEST = 256
"""Statements of a body, about: those of g++ 12 take a second, of twice as many three."""

OF_HEAVY = 4
"""How many statements an exponential counts as."""

_MOST_AGAIN = 4
"""A division that has the next pass compute a larger part of such a body once more, one in so many, is not made."""


def short_bodies(shape: PatternView, passes: Sequence[RowPass], cached: Collection[int]) -> tuple[RowPass, ...]:
    """Return the passes, with those whose body is long in pieces: each has some of its writes and reductions."""
    pieces: list[RowPass] = []
    for row_pass in passes:
        pieces += _divided(shape, row_pass, cached) if isinstance(row_pass, OncePass | LoopPass) else [row_pass]
    return tuple(pieces)


def _divided(shape: PatternView, row_pass: OncePass | LoopPass, cached: Collection[int]) -> Iterator[RowPass]:
    roots = list(_roots(row_pass))
    if len(roots) < 2 or row_pass.partials:
        return iter([row_pass])
    groups: list[list[OncePass | LoopPass]] = [[]]
    together: set[Element] = set()
    for root in roots:
        own = {e for e in walk_pass(shape, root, cached, ()).computed if not is_rematerializable(shape.graph[e[0]])}
        if (
            groups[-1]
            and statements(shape, together | own) > LONGEST
            and statements(shape, together & own) * _MOST_AGAIN <= LONGEST
        ):
            groups.append([])
            together = set()
        groups[-1].append(root)
        together |= own
    return (_joined(group) for group in groups)


def _roots(row_pass: OncePass | LoopPass) -> Iterator[OncePass | LoopPass]:
    """Yield a pass for each value that a pass writes or reduces."""
    if isinstance(row_pass, OncePass):
        yield from (OncePass((i,), (), ()) for i in row_pass.caches)
        yield from (OncePass((), (i,), ()) for i in row_pass.writes)
        return
    yield from (replace(row_pass, reduces=(i,), writes=()) for i in row_pass.reduces)
    yield from (replace(row_pass, reduces=(), writes=(i,)) for i in row_pass.writes)


def _joined(group: Sequence[OncePass | LoopPass]) -> RowPass:
    first = group[0]
    writes = tuple(i for s in group for i in s.writes)
    if isinstance(first, OncePass):
        return OncePass(tuple(i for s in group if isinstance(s, OncePass) for i in s.caches), writes, ())
    return replace(first, reduces=tuple(i for s in group if isinstance(s, LoopPass) for i in s.reduces), writes=writes)


def statements(shape: PatternView, elements: Collection[Element]) -> int:
    """Return about how many statements compute elements."""
    return sum(OF_HEAVY if shape.graph[i].op in HEAVY else 1 for i, _ in elements)
