"""Runs and stretches: which places of a pass are neighbours in memory, and between which of them conditions change.

On a CPU the innermost loop is to read and write neighbours, with nothing to decide: passes go in runs that lie in one
piece in every buffer, and a run is broken where a concatenation's operands meet or a padding begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod

from jax_stitch.analysis.accesses import Walk
from jax_stitch.analysis.locality import guards_of
from jax_stitch.analysis.maps import Guard, Read
from jax_stitch.ir.indices import Expr, linearize
from jax_stitch.ir.indices.expr import Mod, Var
from jax_stitch.ir.indices.variables import PLACE, ROW
from jax_stitch.schedule.model import InnerReducePass, LoopPass, RowPass, SortPass
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.strides import LEAST_RUN, is_unit_stride, moduli, run_length
from jax_stitch.schedule.walks import places_of, transfers, walk_pass
from jax_stitch.util.values import replace

Stretch = tuple[int, int]
"""The places of a run from the first number on, below the second."""

MOST_INTERLEAVED = 16
"""Longer runs of neighbours fill vectors by themselves."""

SECTOR = 32
"""Bytes that a GPU's memory moves at once: runs of neighbours that fill them need no others beside them."""

MOST_STRETCHES = 6
"""More are not worth their code: each repeats the pass."""


def place_periods(shape: PatternView, passes: Sequence[RowPass], cached: Collection[int]) -> dict[int, int]:
    """Return, for each number of places, the shortest run that lies in one piece in every buffer, if it fills
    vectors.
    """
    periods: dict[int, int] = {}
    for s in passes:
        size = places_of(shape, s)
        visited = walk_pass(shape, s, cached, ())
        read = [(index, dims) for index, dims, _ in transfers(shape, [s], [visited])]
        conditions = [((g.value,), (size,)) for g in guards_of(shape.graph, visited.computed)]
        run = run_length([*read, *conditions], PLACE, size)
        periods[size] = min(periods.get(size, size), run if run != size else run_length(read, PLACE, size))
    scanned = {s.size for s in passes if isinstance(s, LoopPass) and s.scans}
    return {size: run for size, run in periods.items() if run != size and size not in scanned}


def interleaving(shape: PatternView, passes: Sequence[RowPass], walks: Sequence[Walk], vectors: bool) -> int:
    """Return how many neighbouring places of a row lie in memory before those of the next row, where that is few and so
    in most of what is read and written (the channels of a group); 1 where not, or where passes need another order.
    ``vectors`` says whether lanes are those of a CPU's vectors.
    """
    if any(
        isinstance(s, SortPass)
        or (vectors and isinstance(s, InnerReducePass))
        or (isinstance(s, LoopPass) and (s.scans or s.partials))
        for s in passes
    ):
        return 1
    votes: dict[int, int] = {}
    for index, dims, size in transfers(shape, passes, walks):
        address = linearize(index, dims)
        most = MOST_INTERLEAVED if vectors else SECTOR * prod(dims) // size
        groups = {g for g in moduli(address, PLACE) if g < most and _row_step(address) == g}
        for g in groups or {1}:
            votes[g] = votes.get(g, 0) + size
    chosen = max(votes, key=votes.__getitem__, default=1)
    return chosen if 2 * votes.get(chosen, 0) > sum(votes.values()) else 1


def interleaved_periods(passes: Sequence[RowPass], group: int) -> dict[int, int]:
    """Return, for each number of places, the runs of as many places as rows are interleaved by."""
    sizes = {s.size for s in passes if isinstance(s, LoopPass)}
    return {size: group for size in sizes if 1 < group < size and size % group == 0}


def _row_step(address: Expr) -> int | None:
    """Return how far the next row mostly is from a row."""
    for atom, c in address.terms:
        if isinstance(atom, Var) and atom.name == ROW:
            return c
        if isinstance(atom, Mod) and atom.by * c >= LEAST_RUN and is_unit_stride(atom.of, ROW):
            return c
    return None


def with_breaks(shape: PatternView, passes: Sequence[RowPass], cached: Collection[int]) -> tuple[RowPass, ...]:
    """Return the passes with breaks where a condition on the place changes, unless that is in many places."""
    broken: list[RowPass] = []
    for s in passes:
        if isinstance(s, LoopPass) and not s.scans:
            guards = guards_of(shape.graph, walk_pass(shape, s, cached, ()).computed)
            breaks = breaks_of(guards)
            s = replace(s, breaks=breaks if len(breaks) < MOST_STRETCHES else ())
        broken.append(s)
    return tuple(broken)


def breaks_of(guards: Iterable[Guard]) -> tuple[int, ...]:
    """Return the places inside a run at which one of the conditions begins to hold or ceases to, in order."""
    return tuple(sorted({at for guard in guards for at in _breaks(guard)}))


def stretches(breaks: Sequence[int], run: int) -> Iterator[Stretch]:
    """Yield the stretches that breaks leave of a run of places."""
    yield from pairwise([0, *breaks, run])


def decided(reads: tuple[Read, ...], stretch: Stretch) -> tuple[Read, ...]:
    """Return the one of several reads that a stretch's places make, without its conditions; all where that is not
    known, or all are made.
    """
    for read in reads if any(read.guards for read in reads) else ():
        verdicts = [_holds(g, stretch) for g in read.guards]
        if all(verdicts):
            return (replace(read, guards=()),)
        if False not in verdicts:
            break
    return reads


def _ends(e: Expr, stretch: Stretch) -> tuple[int, int] | None:
    """Return the least and the greatest value of an expression in a stretch, where it counts places up or down."""
    names = e.variables()
    if {v.name for v in names} != {PLACE}:
        return None
    (place,) = names
    if e.stride_of(place) not in (1, -1):
        return None
    first, last = (e.evaluate({PLACE: j}) for j in (stretch[0], stretch[1] - 1))
    return min(first, last), max(first, last)


def _holds(guard: Guard, stretch: Stretch) -> bool | None:
    """Return whether a condition holds at all places of a stretch (true) or at none (false)."""
    ends = _ends(guard.value, stretch)
    if ends is None:
        return None
    if ends[1] < guard.low or ends[0] > guard.high:
        return False
    return True if guard.step == 1 and guard.low <= ends[0] and ends[1] <= guard.high else None


def _breaks(guard: Guard) -> Iterator[int]:
    """Yield the places inside a run at which a condition begins to hold or ceases to."""
    ends = _ends(guard.value, (0, 1))
    if ends is None:
        return
    (place,) = guard.value.variables()
    assert isinstance(place, Var)
    up = guard.value.stride_of(place) == 1
    first = ends[0]
    bounds = (guard.low - first, guard.high - first + 1) if up else (first - guard.high, first - guard.low + 1)
    yield from (at for at in bounds if 0 < at <= place.high)
