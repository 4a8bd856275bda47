"""A loop whose rows are each worked on by a team of threads."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from msgspec import Struct

from jax_stitch.analysis.binding import Binding
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.patterns.nest import UNKNOWN_TRIPS
from jax_stitch.graph.model import Graph
from jax_stitch.util.values import replace


class Placed(Struct, frozen=True):
    """The elements of a carried array that an iteration overwrites in place: the update of ``node``, a
    ``dynamic-update-slice``.
    """

    node: int
    update: int
    starts: tuple[int, ...]
    binding: Binding


class Carried(Struct, frozen=True):
    """A value carried from one iteration to the next: its parameter and next value in the body, and outside what it
    starts from.
    """

    parameter: int
    next: int
    initial: int
    result: int | None
    """What outside reads the last value, if anything does."""
    binding: Binding
    placed: tuple[Placed, ...] = ()
    """The updates that an iteration makes in place, in order; the last of them is ``next``."""


class Stacked(Struct, frozen=True):
    """An output that every iteration writes a slice of: the slice in the body, where it starts, and the whole array
    outside.
    """

    update: int
    starts: Index
    result: int
    binding: Binding


class End(Struct, frozen=True):
    """A value outside that each team computes its elements of after the last iteration."""

    node: int
    binding: Binding


@dataclass(frozen=True, eq=False)
class TeamLoop:
    """A loop of ``trips`` iterations of which ``rows`` teams do a part each; where nobody knows how many there are
    (None), one team goes on for as long as the carried truth ``test``, a parameter, says.

    ``body`` is the loop's body with counters in closed form; ``arrays`` are those of its parameters that no iteration
    changes, and what they are outside. ``intermediates`` are the values of the body that a team caches in an iteration,
    with their bindings: results of reductions and products, and what many of its threads read. ``blocks`` are those
    that a team is spread over: more than one only where there is one team. Loops in the body (``inner``) are for one
    team of one thread.
    """

    body: Graph
    trips: int | None
    rows: int
    carried: tuple[Carried, ...]
    stacked: tuple[Stacked, ...]
    arrays: Mapping[int, int]
    intermediates: Mapping[int, Binding]
    blocks: int = 1
    apart: frozenset[int] = frozenset()
    """Intermediates that share no sweep with what is computed from them."""
    in_pieces: bool = False
    """Whether sums of more than two padded arrays are written piece by piece too: measured on a CPU alone."""
    test: int | None = None
    inner: Mapping[int, TeamLoop] = field(default_factory=dict)
    """The loops in the body, by their ``while`` nodes: one sweep each, which their own iterations make. What is outside
    for them is the body; their results are intermediates."""
    step: str = "step"
    """The variable that counts iterations."""
    unknown_trips: int = UNKNOWN_TRIPS
    """Iterations that estimates count where nobody knows how many there are."""
    guard: int | None = None
    """The truth of the body without which an iteration changes nothing; it is cached, and tested first."""
    share: float = 1.0
    """The share of iterations in which it is likely to hold."""
    pieces: int = 1
    """Those of heavy sweeps, on a CPU: helpers may do some of them, on other cores."""
    ends: tuple[End, ...] = ()
    """The results of the epilogue."""

    @property
    def likely_trips(self) -> int:
        """Return the number of iterations, for estimates."""
        return self.unknown_trips if self.trips is None else self.trips

    @property
    def cached(self) -> Mapping[int, Binding]:
        """Return all that a team caches: the carried values, by their parameters, and ``intermediates``. A value that
        is updated in place is known by each update of it too.
        """
        after = {i: self.carried[k].binding for i, (k, _) in self.placed.items()}
        return {c.parameter: c.binding for c in self.carried} | after | dict(self.intermediates)

    @property
    def inside(self) -> Hashable:
        """Return all of it that its sweeps depend on besides its body: nothing of what is outside."""
        carried = tuple((c.parameter, c.next, c.binding, c.placed) for c in self.carried)
        stacked = tuple((s.update, s.starts, s.binding) for s in self.stacked)
        cached = tuple(self.intermediates.items()), self.apart, tuple(self.inner.items())
        ends = self.trips, self.test, self.guard, self.share
        return self.rows, self.blocks, self.pieces, ends, carried, stacked, tuple(self.arrays), cached

    @cached_property
    def placed(self) -> Mapping[int, tuple[int, Placed]]:
        """Return the updates in place by their nodes, each with the number of the carried value."""
        return {p.node: (k, p) for k, c in enumerate(self.carried) for p in c.placed}

    def results_of(self, inner: int) -> tuple[int, ...]:
        """Return the intermediates that a loop in the body leaves."""
        loop = self.inner[inner]
        made = [c.result for c in loop.carried] + [s.result for s in loop.stacked]
        return tuple(sorted(i for i in made if i is not None and i in self.intermediates))

    @property
    def made_by_inner(self) -> Mapping[int, int]:
        """Return the intermediates that loops in the body leave, and which."""
        return {i: node for node in self.inner for i in self.results_of(node)}

    def renumbered(self, ids: Mapping[int, int]) -> TeamLoop:
        """Return the same where the values outside have other ids."""
        carried = tuple(
            replace(c, initial=ids[c.initial], result=None if c.result is None else ids[c.result]) for c in self.carried
        )
        stacked = tuple(replace(s, result=ids[s.result]) for s in self.stacked)
        arrays = MappingProxyType({i: ids[outside] for i, outside in self.arrays.items()})
        ends = tuple(replace(e, node=ids[e.node]) for e in self.ends)
        return replace(self, carried=carried, stacked=stacked, arrays=arrays, ends=ends)
