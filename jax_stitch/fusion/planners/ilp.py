"""The plan as a 0/1 program (2019 paper, section 4.1), solved by HiGHS.

One variable for each pattern, its saving in the objective, at most one pattern for each node. That patterns must not
wait for each other in a ring is not in the program: a solution with a ring in it adds a constraint that rules the ring
out, and the program is solved again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from jax_stitch.devices import Device
from jax_stitch.fusion.outcome import Outcome, outcome_of
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.planners.fusions import pattern_set
from jax_stitch.fusion.planners.selection import greedy
from jax_stitch.fusion.planners.space import Scored, Space, cycle_of
from jax_stitch.fusion.search import Search
from jax_stitch.graph.model import Graph
from jax_stitch.loops.thread_loops import ThreadLoops

LIMIT_SECONDS = 20.0
"""For all solutions of one graph."""


class Solution(Struct, frozen=True):
    """Patterns that can be taken together, and whether none of the set's selections saves more."""

    patterns: tuple[Scored, ...]
    is_optimal: bool

    @property
    def seconds(self) -> float:
        """Return the seconds that the chosen patterns save."""
        return sum(p.seconds for p in self.patterns)


def choose(graph: Graph, loops: ThreadLoops, device: Device, patience: Patience = ENDLESS) -> Outcome:
    """Return the patterns of the best solution; what is left is filled in greedily."""
    return choose_in(Space(Search(graph, device, loops)), loops)


def choose_in(space: Space, loops: ThreadLoops) -> Outcome:
    """Return the same of patterns that others may have looked at before."""
    search = Search(space.graph, space.search.device, loops)
    solution = solve(pattern_set(space), LIMIT_SECONDS)
    for pattern in sorted(solution.patterns, key=lambda p: -p.seconds):
        search.adopt(pattern.members, pattern.seed)
    search.complete()
    late = f"the 0/1 program was not solved in {LIMIT_SECONDS:g} s: the plan is the best found by then"
    return outcome_of(search, () if solution.is_optimal else (late,))


def solve(patterns: Sequence[Scored], limit: float) -> Solution:
    """Return the disjoint patterns without a ring that save most; where ``limit`` seconds do not suffice, the best
    known.
    """
    end = time.monotonic() + limit
    best = Solution(greedy(patterns).patterns, False)
    if not patterns:
        return Solution((), True)
    rows = _overlaps(patterns)
    number = {id(p): k for k, p in enumerate(patterns)}
    while (left := end - time.monotonic()) > 0:
        chosen, is_optimal = _solved(patterns, rows, left)
        if chosen is None:
            return best
        ring = cycle_of(chosen)
        if not ring:
            solution = Solution(tuple(chosen), is_optimal)
            return solution if is_optimal or solution.seconds > best.seconds else best
        rows.append(([number[id(p)] for p in ring], len(ring) - 1))
    return best


Row = tuple[list[int], int]
"""Numbers of patterns, and how many of them there may be at most."""


def _overlaps(patterns: Sequence[Scored]) -> list[Row]:
    """Return, for each node, the patterns that hold it: at most one of them may be chosen."""
    holders: dict[int, list[int]] = {}
    for k, p in enumerate(patterns):
        for i in p.members:
            holders.setdefault(i, []).append(k)
    return [(list(held), 1) for held in dict.fromkeys(map(tuple, holders.values())) if len(held) > 1]


def _solved(patterns: Sequence[Scored], rows: Sequence[Row], limit: float) -> tuple[list[Scored] | None, bool]:
    """Return the chosen patterns and whether they are proven best; ``None`` where no solution was found in time."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # Few graphs are worth what that takes to import.
    from scipy.sparse import csr_array

    constraints = []
    if rows:
        at = [(r, k) for r, (numbers, _) in enumerate(rows) for k in numbers]
        matrix = csr_array((np.ones(len(at)), tuple(zip(*at, strict=True))), shape=(len(rows), len(patterns)))
        constraints.append(LinearConstraint(matrix, ub=np.array([most for _, most in rows], float)))
    saved = np.array([p.seconds for p in patterns])
    result = milp(
        -saved / saved.max(),  # Seconds are small beside the solver's tolerances.
        integrality=np.ones(len(patterns)),
        bounds=Bounds(0, 1),
        constraints=constraints,
        options={"time_limit": limit, "mip_rel_gap": 1e-9},
    )
    if result.x is None:
        return None, False
    return [p for p, x in zip(patterns, result.x, strict=True) if x > 0.5], result.status == 0
