"""The sweeps of a team's iteration: what its threads compute between two barriers, and how they share it out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from itertools import product
from math import prod

from msgspec import Struct

from jax_stitch.analysis.binding import Binding, index_of, inner_sizes
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.terms import terms_of
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.indices import Expr, const, delinearize, linearize, var
from jax_stitch.indices.variables import PLACE, RUN, row_index
from jax_stitch.ir.team import TeamLoop
from jax_stitch.loops.scatter import window_starts
from jax_stitch.loops.team import contraction, elements_at, inner_reads, reach, step_of


class Target(Enum):
    """Where a sweep writes a value."""

    INTERMEDIATE = "what the team caches during an iteration"
    CARRIED = "the value of the next iteration"
    STACKED = "this iteration's slice of an output"
    ADDED = "added to what the team caches, at places that are data"
    PLACED = "written over elements of a carried array, at places that may be data"


_CACHED = Target.INTERMEDIATE, Target.ADDED


class Write(Struct, frozen=True):
    """A value that a sweep computes at each place of its domain, and where to.

    ``slot`` is the cached node, or the number of the carried or stacked value; of a piece of it ``shift`` is where that
    starts, and ``strides`` how far apart its elements lie, where they are no neighbours. To some pieces zero is
    ``added``, which makes one of a zero below zero.
    """

    node: int
    binding: Binding
    target: Target
    slot: int
    shift: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    added: bool = False

    def whole_index(self, index: Index) -> Index:
        """Return the index that an element of a piece has in the whole."""
        if not self.shift:
            return index
        strides = self.strides or (1,) * len(index)
        return tuple(i * step + start for i, step, start in zip(index, strides, self.shift, strict=True))

    @property
    def sizes(self) -> tuple[int, ...]:
        return inner_sizes(self.binding)


class Sharing(Struct, frozen=True):
    """How the places of a sweep are shared out: neighbouring threads along the factor ``lane`` of the domain, ``tile``
    places of the factor ``tiled`` and ``wide`` of the factor ``lane`` by one thread, and ``split`` threads to each
    reduction. A product in blocks (``blocks``) says how many neighbouring places are a ``chunk``. On a CPU helpers may
    do some of the ``pieces`` of a divided sweep.
    """

    lane: int = -1
    tiled: int = -1
    tile: int = 1
    split: int = 1
    wide: int = 1
    chunk: int = 0
    pieces: int = 1

    @property
    def sums(self) -> int:
        """Return the places of one thread."""
        return self.tile * self.wide


class Sweep(Struct, frozen=True):
    """One pass of the team over a domain of ``sizes`` places: its reductions and products (``reduces``), then what is
    computed from them and from earlier sweeps' values at the same place.
    """

    sizes: tuple[int, ...]
    reduces: tuple[int, ...]
    writes: tuple[Write, ...]
    sharing: Sharing = Sharing()
    inner: int | None = None
    """The loop in the body that this is, whole."""

    @property
    def adds(self) -> bool:
        """Return whether several places may add to one."""
        return any(w.target is Target.ADDED for w in self.writes)

    @property
    def lanes(self) -> int:
        """Return the places that neighbouring threads have."""
        return self.sizes[self.sharing.lane] // self.sharing.wide if self.sizes else 1

    @property
    def runs(self) -> int:
        """Return how often ``lanes`` places are gone through."""
        return prod(self.sizes) // self.lanes // self.sharing.sums

    def places(self) -> list[Expr]:
        """Return the places in the domain of run ``run`` and lane ``j``: those of the tile, by ``wide`` times."""
        if not self.sizes:
            return [const(0)]
        lane, tiled, tile = self.sharing.lane % len(self.sizes), self.sharing.tiled, self.sharing.tile
        others = [d for d in range(len(self.sizes)) if d != lane]
        counts = [self.sizes[d] // (tile if d == tiled else 1) for d in others]
        digits = dict(zip(others, delinearize(var(RUN, prod(counts)), counts), strict=True))
        digits[lane] = var(PLACE, self.lanes)
        points = []
        for u, v in product(range(tile), range(self.sharing.wide)):
            at = {d: digit * tile + u if d == tiled and tile > 1 else digit for d, digit in digits.items()}
            at[lane] = digits[lane] + v * self.lanes
            points.append(linearize([at[d] for d in range(len(self.sizes))], self.sizes))
        return points


BarrierGroup = tuple[Sweep, ...]
"""Sweeps with no barrier between them."""


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
    placed = loop.carried[write.slot].placed
    assert placed is not None
    starts = [(write.node, elements_at(loop, write.binding)), *((o, ()) for o in placed.starts)]
    elements = {e for e in starts if e[0] in cached}
    return elements | reach(loop.body, [e for e in starts if e[0] not in cached], cached, loop.arrays).cached.keys()


def reduce_terms(loop: TeamLoop, reduce: int) -> list[tuple[int, Index]]:
    """Return the operand elements of a reduction or product at place ``j`` of its domain and step ``q``."""
    node = loop.body[reduce]
    return terms_of(loop.body, node, elements_at(loop, binding_of(loop, reduce)), step_of(loop.body, node))


def binding_of(loop: TeamLoop, reduce: int) -> Binding:
    """Return the binding of the results of a reduction or product."""
    if reduce in loop.intermediates:
        return loop.intermediates[reduce]
    return next(loop.intermediates[u] for u in loop.body.users[reduce] if u in loop.intermediates)


def results_in(body: Graph, reduce: int, intermediates: Mapping[int, Binding]) -> dict[int, int]:
    """Return the intermediates that a reduction or product makes, by the number of its result."""
    if isinstance(body[reduce].type, TensorType):
        return {0: reduce}
    return {body[u].attributes["index"]: u for u in body.users[reduce] if u in intermediates}


def index_at(loop: TeamLoop, binding: Binding, place: Expr) -> Index:
    """Return the index of a value's element at a place of its domain."""
    return index_of(binding, row_index(loop.rows), place)
