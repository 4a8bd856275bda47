"""What a planner is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.devices import Device
from jax_stitch.fusion.patience import Patience
from jax_stitch.fusion.search import Search
from jax_stitch.graph.model import Graph
from jax_stitch.loops.thread_loops import ThreadLoops


@dataclass(frozen=True, eq=False)
class Outcome:
    """The patterns that a planner has chosen, on its graph with reductions across rows in two steps."""

    graph: Graph
    groups: tuple[tuple[Pattern, ...], ...]
    """Patterns worth a kernel; more than one where the planner has packed independent ones itself."""
    loops: tuple[Pattern, ...]
    refused: Mapping[int, str]
    """Why loops stay with XLA, by node."""
    saved: float
    """Seconds saved over XLA's kernels, by the delta-evaluator."""
    here: Mapping[int, int]
    """The nodes of the graph that was planned as they are in ``graph``: of a reduction in two steps the last."""
    notes: tuple[str, ...] = ()
    """What a user should know about the choice."""


Choose = Callable[[Graph, ThreadLoops, Device, Patience], Outcome]
"""There is always a plan; with ``Patience`` left, better ones are looked for."""


class Begun(Struct, frozen=True, eq=False):
    """A plan that took next to no time, and what may come of looking for better ones."""

    outcome: Outcome
    most: float
    """Seconds that no plan can save more than."""
    missing: float
    """Of these what the plan does not save; 0 where no better one is looked for."""
    improved: Callable[[Patience, bool], Outcome]
    """The best plan that is found until patience is over, with all care or with less."""


class Planner(Struct, frozen=True):
    """A way to choose patterns."""

    choose: Choose
    stitches_loops: bool
    """Whether whole loops become kernels."""
    compares: bool
    """Whether small graphs are planned both as a whole and in pieces: the plan that is predicted faster is taken."""
    packs: bool
    """Whether what it chose is packed and composed further: remote fusion, and phases behind barriers."""
    begin: Callable[[Graph, ThreadLoops, Device], Begun] | None = None
    """The first step of ``choose``, where it has two."""


def outcome_of(search: Search, notes: tuple[str, ...] = ()) -> Outcome:
    """Return what a search has taken."""
    return Outcome(
        search.graph,
        tuple((p,) for p in search.chosen),
        tuple(search.loops),
        search.refused,
        search.saved,
        search.here,
        notes,
    )
