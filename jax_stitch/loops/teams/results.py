"""What a CPU reads and writes for the results of a sweep's sums, and what it costs that neighbouring places are apart.

A vector of places is loaded and stored at once where its elements are neighbours in memory, and element by element
where they are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from jax_stitch.analysis.accesses import Element
from jax_stitch.analysis.binding import position_in
from jax_stitch.analysis.contraction import contraction
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.patterns.sweeps import Sweep, Target, Write, carried_by, index_at
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.ir.indices import linearize, var
from jax_stitch.ir.indices.expr import Expr, Var
from jax_stitch.ir.indices.variables import row_index
from jax_stitch.kernel.square_loads import LEAST_ACROSS
from jax_stitch.loops.teams.team import reach

APART_CLOCKS = 1.1
"""Of an element that is read or written by itself. Measured."""


def apart_clocks(loop: TeamLoop, sweep: Sweep) -> tuple[float, ...]:
    """Return the clocks that the results of a sweep take for what they read and write element by element, if
    neighbouring lanes lie along each factor of its domain.
    """
    places = [var(f"d{k}", size) for k, size in enumerate(sweep.sizes)]
    addresses = list(_addresses(loop, sweep, linearize(places, sweep.sizes)))
    clocks = []
    for place in places:
        clocks.append(APART_CLOCKS * sum(n for address, n in addresses if not _are_neighbours(address, place)))
    return tuple(clocks)


def reads_across(loop: TeamLoop, sweep: Sweep) -> bool:
    """Return whether something large that lies apart along the lanes of a sweep is next to each other along its runs,
    as what is transposed: line by line it would be loaded once for each element.
    """
    if len(sweep.sizes) < 2 or sweep.sharing.lane != len(sweep.sizes) - 1:
        return False
    places = [var(f"d{k}", size) for k, size in enumerate(sweep.sizes)]
    addresses = [e for e, n in _addresses(loop, sweep, linearize(places, sweep.sizes)) if n >= LEAST_ACROSS]
    apart = [e for e in addresses if not _are_neighbours(e, places[-1])]
    return any(_moves(e, places[-2]) and _are_neighbours(e, places[-2]) for e in apart)


def _moves(address: Expr, place: Expr) -> bool:
    return any(atom in address.variables() for atom, _ in place.terms)


def _are_neighbours(address: Expr, place: Expr) -> bool:
    if place.is_const:
        return True
    ((atom, _),) = place.terms
    assert isinstance(atom, Var)
    if atom not in address.variables():
        return True  # One element serves all.
    return address.stride_of(atom) in (1, -1)


def _addresses(loop: TeamLoop, sweep: Sweep, place: Expr) -> Iterable[tuple[Expr, int]]:
    """Return what is read and written at a place of the domain, and how often in all."""
    body, row = loop.body, row_index(loop.rows)
    here = {w.slot for w in sweep.writes if w.target is Target.INTERMEDIATE}
    sums = {i: made for i in loop.intermediates if (made := contraction(body, i)) is not None}
    # What the sweep sums up itself is in registers.
    own = {i for i, made in sums.items() if made.id in sweep.reduces}
    cached = {i: b for i, b in loop.cached.items() if i in sums or i not in here}
    for w in sweep.writes:
        if w.target is Target.ADDED:
            continue
        index, times = index_at(loop, w.binding, place), prod(w.sizes)
        yield _target(loop, w, index), times
        if w.node in own:
            continue
        start = w.node, index
        if w.node in cached and not (w.target is Target.INTERMEDIATE and w.node == w.slot):
            ready, loaded = {start}, set[Element]()
        else:
            reached = reach(body, [start], cached, loop.arrays)
            ready, loaded = set(reached.cached), set(reached.loaded)
        for i, at in ready:
            position = None if i in own else position_in(cached[i], row, at)
            if position is not None:
                yield position, times
        for i, at in loaded:
            yield linearize(at, body[i].tensor.dims), times


def _target(loop: TeamLoop, w: Write, index: Index) -> Expr:
    index, body = w.whole_index(index), loop.body
    if w.target is Target.STACKED:
        return linearize(index, body[w.node].tensor.dims)
    slot = w.slot if w.target is Target.INTERMEDIATE else carried_by(loop, w).parameter
    position = position_in(loop.cached[slot], row_index(loop.rows), index)
    assert position is not None
    return position
