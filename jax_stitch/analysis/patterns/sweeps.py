"""The sweeps of a team's iteration: what its threads compute between two barriers, and how they share it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import product
from math import prod

from msgspec import Struct

from jax_stitch.analysis.binding import Binding, index_of, inner_sizes
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.patterns.team import Carried, TeamLoop
from jax_stitch.analysis.terms import step_count
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.indices import Expr, const, delinearize, linearize, var
from jax_stitch.ir.indices.variables import PLACE, RUN, row_index


class Target(Enum):
    """Where a sweep writes a value."""

    INTERMEDIATE = "what the team caches during an iteration"
    CARRIED = "the value of the next iteration"
    STACKED = "this iteration's slice of an output"
    ADDED = "added to what the team caches, at places that are data"
    PLACED = "written over elements of a carried array, at places that may be data"


class Write(Struct, frozen=True):
    """A value that a sweep computes at each place of its domain, and where to.

    ``slot`` is the cached node, the number of the carried or stacked value, or the update in place; of a piece of it
    ``shift`` is where that starts, and ``strides`` how far apart its elements lie, where they are no neighbours. To
    some pieces zero is ``added``, which makes one of a zero below zero.
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
    fragments: tuple[int, ...] = ()
    """The fragments of a warp along the other factor and along ``lane``, of 16 by 8 places each, where tensor cores
    multiply."""

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


def guarded_from(loop: TeamLoop, groups: Sequence[BarrierGroup]) -> int:
    """Return the number of the first group of an iteration that is done only where the loop's guard holds."""
    writes = [{w.slot for sweep in group for w in sweep.writes if w.target is Target.INTERMEDIATE} for group in groups]
    return 0 if loop.guard is None else 1 + next(k for k, written in enumerate(writes) if loop.guard in written)


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


def elements_at(loop: TeamLoop, binding: Binding) -> Index:
    """Return the index of a value's element at place ``j`` of its team's part."""
    return index_of(binding, row_index(loop.rows), var(PLACE, prod(inner_sizes(binding))))


def carried_by(loop: TeamLoop, write: Write) -> Carried:
    """Return the carried value that a write is the next of, or part of the next of."""
    return loop.carried[loop.placed[write.slot][0] if write.target is Target.PLACED else write.slot]


def step_groups(loop: TeamLoop, sweep: Sweep, threads: int) -> list[list[int]]:
    """Return the reductions of a sweep in groups that go through their steps together: all of equal step count; on a
    CPU, where a group is fast if it needs few registers, only those that share an operand.
    """
    groups: list[list[int]] = []
    for r in sweep.reduces:
        own = set(loop.body[r].operands)
        for others in groups:
            same = step_count(loop.body, others[0]) == step_count(loop.body, r)
            if same and (threads > 1 or any(own & set(loop.body[o].operands[:2]) for o in others)):
                others.append(r)
                break
        else:
            groups.append([r])
    return groups
