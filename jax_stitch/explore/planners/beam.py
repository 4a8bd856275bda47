"""Beam search over whole plans (2021 paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jax_stitch.devices import Device
from jax_stitch.explore.kernels import kernels_of
from jax_stitch.explore.outcome import Outcome, outcome_of
from jax_stitch.explore.pattern import FusionPlan
from jax_stitch.explore.planners.candidates import candidates
from jax_stitch.explore.planners.space import Scored, Space, bound, is_acyclic
from jax_stitch.explore.predict import best_of
from jax_stitch.explore.search import Search
from jax_stitch.explore.thread_loops import ThreadLoops
from jax_stitch.graph.model import Graph

WIDTH = 3
"""Plans kept while the vertices are traversed."""

LARGEST = 600
"""Nodes of the largest graph that the beam searches."""

NEAR = 0.98
"""The share of what no plan can save more than from which no better plan is looked for."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Disjoint patterns that can run one after the other."""

    patterns: tuple[Scored, ...] = ()
    nodes: int = 0
    seconds: float = 0.0

    def with_pattern(self, pattern: Scored) -> Selection | None:
        """The selection and one more, if they do not overlap or wait for each other."""
        if self.nodes & pattern.nodes:
            return None
        patterns = (*self.patterns, pattern)
        waits = pattern.after & self.nodes and pattern.before & self.nodes
        if waits and not is_acyclic(patterns):
            return None
        return Selection(patterns, self.nodes | pattern.nodes, self.seconds + pattern.seconds)


def choose(graph: Graph, loops: ThreadLoops, device: Device) -> Outcome:
    """The plan that saves most: that of the greedy search, or of the beam where it is better.

    Each plan of the beam is carried out, with what is left filled in greedily, and judged by what its kernels are then
    predicted to take. Where the greedy plan is close to what no plan can exceed, no other is looked for; nor where the
    graph is large, which is planned in pieces besides.
    """
    search = Search(graph, device, loops)
    start = Search(graph, device, loops)
    search.complete()
    found = [outcome_of(search)]
    if len(graph) <= LARGEST and search.saved < NEAR * bound(start):
        for selection in select(Space(start)):
            search = Search(graph, device, loops)
            for pattern in selection.patterns:
                search.adopt(pattern.members, pattern.seed)
            search.complete()
            found.append(outcome_of(search))
    # Loops and branches that stay with XLA are the same in all of them.
    plans = [FusionPlan(o.graph, kernels_of(o, device, packs=True), (), {}) for o in found] if len(found) > 1 else []
    return found[plans.index(best_of(plans, device))] if plans else found[0]


def select(space: Space, width: int = WIDTH) -> tuple[Selection, ...]:
    """The best plans of the candidates of all vertices, by what their patterns save, best first."""
    found = candidates(space)
    beam = search_beam(found, width)
    return tuple(dict.fromkeys((*beam, greedy(found))))


def search_beam(patterns: Sequence[Scored], width: int) -> tuple[Selection, ...]:
    """Traverses patterns by their first node, from producers to consumers, and tries to append each to each plan."""
    beam = [Selection()]
    starts = sorted(patterns, key=lambda p: (p.nodes & -p.nodes, -p.seconds))
    for pattern in starts:
        grown = [with_it for plan in beam if (with_it := plan.with_pattern(pattern)) is not None]
        beam = sorted([*beam, *grown], key=lambda s: -s.seconds)[:width]
    return tuple(beam)


def greedy(patterns: Sequence[Scored]) -> Selection:
    """The best pattern first, then the best beside it, and so on."""
    plan = Selection()
    for pattern in patterns:
        plan = plan.with_pattern(pattern) or plan
    return plan
