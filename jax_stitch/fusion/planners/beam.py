"""Beam search over whole plans (2021 paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.analysis.patterns.pattern import FusionPlan
from jax_stitch.devices import Device
from jax_stitch.fusion.columns import column_bytes
from jax_stitch.fusion.launches.form_launches import kernels_of
from jax_stitch.fusion.outcome import Begun, Outcome, outcome_of
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.plan_cost import best_of
from jax_stitch.fusion.planners import ilp
from jax_stitch.fusion.planners.candidates import candidates
from jax_stitch.fusion.planners.selection import Selection, greedy, search_beam
from jax_stitch.fusion.planners.space import Space, atoms_of, bound
from jax_stitch.fusion.prologues import INSIDE, prologues
from jax_stitch.fusion.search import Search
from jax_stitch.fusion.weighing import estimated_seconds
from jax_stitch.graph.model import Graph
from jax_stitch.loops.thread_loops import ThreadLoops

WIDTH = 3
"""Plans kept while the vertices are traversed."""

LARGEST = 600
"""Nodes of the largest graph that the beam searches."""

LARGEST_SOLVED = 150
"""Nodes of the largest graph of which the 0/1 program's plan is compared too."""

MOST_ATOMS = 12
"""XLA's kernels in such a graph: the patterns that the program chooses among grow with their number, not the nodes'."""

MOST_ATOMS_WHERE_POOR, POOR = 16, 0.5
"""The same where the plans until then save less than this share of what no plan can exceed."""

SOLVER_SECONDS = 5.0
"""Of patience that have to be left for the 0/1 program: its solver takes half a second to import."""

NEAR = 0.98
"""The share of what no plan can save more than from which no better plan is looked for."""


def choose(graph: Graph, loops: ThreadLoops, device: Device, patience: Patience = ENDLESS) -> Outcome:
    """Return the plan that is predicted best: that of the greedy search, of the beam, or of the 0/1 program where the
    graph is small.
    """
    return begin(graph, loops, device).improved(patience, True)


def begin(graph: Graph, loops: ThreadLoops, device: Device) -> Begun:
    """Return the plan of the greedy search. Where it takes anything out of a GPU's product, or has a CPU read in short
    runs, a second one does not.

    Where it is close to what no plan can exceed, no other is looked for; nor where the graph is large, which is planned
    in pieces besides.
    """
    start = Search(graph, device, loops)
    search = start.again()
    search.complete()
    outcomes = [outcome_of(search)]
    now = {i for p in search.chosen for i in p.nodes}
    taken = [before for before, i in search.here.items() if i in now]
    if inside := prologues(graph, taken):
        apart = ThreadLoops(loops.patterns, {**loops.refused, **dict.fromkeys(inside, INSIDE)})
        again = Search(graph, device, apart)
        again.complete()
        outcomes.append(outcome_of(again))
    if any(column_bytes(search.graph, p, device) for p in search.chosen):
        again = Search(graph, device, loops, columns=False)
        again.complete()
        outcomes.append(outcome_of(again))
    most = bound(start)
    best = _best(outcomes, device)
    if search.saved >= NEAR * most or len(graph) > LARGEST:
        return Begun(best, most, 0.0, lambda patience, with_care: best)

    def improved(patience: Patience, with_care: bool) -> Outcome:
        with patience.spent():
            return _improved(start, loops, outcomes, most, patience, with_care)

    return Begun(best, most, most - search.saved, improved)


def _improved(
    start: Search, loops: ThreadLoops, begun: Sequence[Outcome], most: float, patience: Patience, with_care: bool
) -> Outcome:
    """Return the best of the plans that there are and those of the beam; ``with_care`` also that of the 0/1 program,
    where the graph is small.

    Each plan of the beam is carried out, with what is left filled in greedily, and judged by what its kernels are then
    predicted to take.
    """
    device, outcomes = start.device, [*begun]
    if patience.is_over:
        return _best(outcomes, device)
    space = Space(start, patience)
    selections = select(space)
    if space.gave_up or patience.is_over:  # Of some of the sets only, the best are many small kernels.
        return _best(outcomes, device)
    for selection in selections:
        search = start.again()
        for pattern in selection.patterns:
            search.adopt(pattern.members, pattern.seed)
        search.complete()
        outcomes.append(outcome_of(search))
    is_poor = max(outcome.saved for outcome in outcomes) < POOR * most
    most_atoms = MOST_ATOMS_WHERE_POOR if is_poor else MOST_ATOMS
    is_small = with_care and len(start.graph) <= LARGEST_SOLVED
    if patience.has(SOLVER_SECONDS) and is_small and len(atoms_of(start)) <= most_atoms:
        outcomes.append(ilp.choose_in(space, loops))
    return _best(outcomes, device)


def _best(outcomes: Sequence[Outcome], device: Device) -> Outcome:
    """Return the outcome that is predicted best, unless the first is estimated to take less by its calls and
    operations.
    """
    if len(outcomes) == 1:
        return outcomes[0]
    # Loops and branches that stay with XLA are the same in all of them.
    plans = [FusionPlan(o.graph, kernels_of(o, device, packs=True), (), {}) for o in outcomes]
    first, best = plans[0], best_of(plans, device)
    if best is not first and device.target.weighs_alternatives:
        best = min(first, best, key=lambda plan: estimated_seconds(plan, device))
    return outcomes[plans.index(best)]


def select(space: Space, width: int = WIDTH) -> tuple[Selection, ...]:
    """Return the best plans of the candidates of all vertices, by what their patterns save, best first."""
    scored = candidates(space)
    beam = search_beam(scored, width)
    return tuple(dict.fromkeys((*beam, greedy(scored))))
