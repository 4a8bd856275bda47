"""The sweeps of a team's iteration: what its threads compute between two barriers, and how they share it out."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from jax_stitch.analysis.accesses import Element, accesses
from jax_stitch.analysis.binding import inner_sizes
from jax_stitch.analysis.contraction import contraction, step_of
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.patterns.sweeps import BarrierGroup, Sweep, Target, Write, binding_of, elements_at
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.terms import terms_of
from jax_stitch.analysis.windows import window_starts
from jax_stitch.graph.model import Graph
from jax_stitch.ir.indices import var
from jax_stitch.ir.indices.variables import PLACE
from jax_stitch.loops.teams.team import inner_reads, reach

_CACHED = Target.INTERMEDIATE, Target.ADDED


def reads_by_group(loop: TeamLoop, groups: Iterable[BarrierGroup]) -> dict[int, list[tuple[int, Sweep, bool]]]:
    """Return for each carried value's parameter where it is read: the group's number, the sweep, and whether only at
    the place of the reader.
    """
    reads: dict[int, list[tuple[int, Sweep, bool]]] = {c.parameter: [] for c in loop.carried}
    groups = tuple(groups)
    written = {w.slot for group in groups for sweep in group for w in sweep.writes if w.target in _CACHED}
    # What is cached for nobody is computed where it is read: its sweep reads what it is made of.
    gone = {i for i in loop.intermediates if i not in written and contraction(loop.body, i) is None}
    cached = {i: binding for i, binding in loop.cached.items() if i not in gone}
    for number, group in enumerate(groups):
        for sweep in group:
            for o, index in sweep_reads(loop, sweep, cached):
                if o in reads:
                    own = index == elements_at(loop, cached[o]) and inner_sizes(cached[o]) == sweep.sizes
                    reads[o].append((number, sweep, own))
    return reads


def sweep_reads(loop: TeamLoop, sweep: Sweep, cached: Collection[int]) -> set[tuple[int, Index]]:
    """Return the cached elements that a sweep reads, at place ``j`` of its domain."""
    body = loop.body
    elements: set[tuple[int, Index]] = set()
    if sweep.inner is not None:
        reads = (o for o in inner_reads(loop.inner[sweep.inner], body) if o in cached)
        return {(o, tuple(var(f"any{d}", size) for d, size in enumerate(body[o].tensor.dims))) for o in reads}
    for r in sweep.reduces:
        for start in reduce_terms(loop, r):
            elements.update([start] if start[0] in cached else reach(body, [start], cached, loop.arrays).cached)
    for w in sweep.writes:
        start = (w.node, elements_at(loop, w.binding))
        if w.target is Target.INTERMEDIATE and contraction(body, w.node) is not None and w.node == w.slot:
            continue
        if w.target is Target.ADDED:
            elements |= added_reads(loop, w, cached)
        elif w.target is Target.PLACED:
            elements |= placed_reads(loop, w, cached)
        elif w.node in cached and not (w.target is Target.INTERMEDIATE and w.node == w.slot):
            elements.add(start)
        else:
            elements.update(reach(body, [start], cached, loop.arrays).cached)
    return elements


def added_reads(loop: TeamLoop, write: Write, cached: Collection[int]) -> set[tuple[int, Index]]:
    """Return the cached elements that an update of a scatter reads: for its value, and for where it belongs."""
    index = elements_at(loop, write.binding)
    starts = [(write.node, index), *window_starts(loop.body[write.slot], index).values()]
    elements = {e for e in starts if e[0] in cached}
    return elements | reach(loop.body, [e for e in starts if e[0] not in cached], cached, loop.arrays).cached.keys()


def placed_reads(loop: TeamLoop, write: Write, cached: Collection[int]) -> set[tuple[int, Index]]:
    """Return the cached elements that an update in place reads: for its value, and for where it starts."""
    _, placed = loop.placed[write.slot]
    starts = [(write.node, elements_at(loop, write.binding)), *((o, ()) for o in placed.starts)]
    elements = {e for e in starts if e[0] in cached}
    return elements | reach(loop.body, [e for e in starts if e[0] not in cached], cached, loop.arrays).cached.keys()


def varying(body: Graph, computed: Collection[Element]) -> list[Element]:
    """Return those of some computed elements that differ from place to place: others are computed once for all of
    them.
    """
    found: set[Element] = set()

    def varies(i: int, at: Index) -> bool:
        if (i, at) in computed:
            return (i, at) in found
        axes = at if body[i].op != "iota" else (at[body[i].attributes["iota_dimension"]],)
        return any(v.name == PLACE for e in axes for v in e.variables())

    for i, at in sorted(computed, key=lambda e: e[0]):
        reads = accesses(body).reads((i, at))
        if any(r.starts or r.guards or varies(body[i].operands[r.operand], r.index) for r in reads):
            found.add((i, at))
    return [e for e in computed if e in found]


def reduce_terms(loop: TeamLoop, reduce: int) -> list[tuple[int, Index]]:
    """Return the operand elements of a reduction or product at place ``j`` of its domain and step ``q``."""
    node = loop.body[reduce]
    return terms_of(loop.body, node, elements_at(loop, binding_of(loop, reduce)), step_of(loop.body, node))
