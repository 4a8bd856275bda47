"""Whether a loop runs in teams, and in which: a block per group of rows, or one team spread over all blocks."""

from __future__ import annotations

from dataclasses import replace

from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.devices import Device
from jax_stitch.graph.model import STREAMED, Graph, Node
from jax_stitch.loops.cost.team_cost import is_worth, team_seconds
from jax_stitch.loops.teams.helped import HELP_GAIN, MOST_PIECES, helped_seconds, may_have_helpers
from jax_stitch.loops.teams.sums_apart import sums_apart
from jax_stitch.loops.teams.sweep_planner import barrier_groups
from jax_stitch.loops.teams.team import FEW_ROWS, NotForTeams, team_loop

FASTER_AS_KERNELS = "a loop whose steps are faster as XLA's kernels"
"""Why a loop is left to XLA, as the end of a sentence."""

SPREAD_GAIN = 1.5
"""By what factor a spread team has to be faster than teams of a block, which do not wait for each other."""

ROUNDING_UP = 1.05
"""By what factor small teams of a CPU may seem slower than large ones, which stay in its caches less."""

SPREADS = 3
"""Numbers of blocks that are tried, each half of the one before."""


def best_team(graph: Graph, node: Node, body: Graph, device: Device) -> TeamLoop:
    """Return the teams that a ``while`` of ``graph`` is estimated fastest in.

    Raises ``NotForTeams``, also where that is not faster than XLA's own kernels for ``body``.
    """
    plain = _block_teams(graph, node, device)
    if STREAMED in node.attributes:
        return _helped(plain, device)
    wide = _spread(plain if plain.rows == 1 else team_loop(graph, node, device, single=True), device)
    if not is_worth(plain, node, body, device):
        if wide is None or not is_worth(wide, node, body, device):
            raise NotForTeams(FASTER_AS_KERNELS)
        return wide
    if wide is not None and SPREAD_GAIN * team_seconds(wide, device) < team_seconds(plain, device):
        return wide
    return _helped(plain, device)


def _helped(loop: TeamLoop, device: Device) -> TeamLoop:
    """Return the same with helpers, on a CPU with cores to spare, where that is estimated faster."""
    if not may_have_helpers(loop, device):
        return loop
    alone = team_seconds(loop, device)
    counts = range(2, min(device.multiprocessors, MOST_PIECES) + 1)
    best = min((replace(loop, pieces=n) for n in counts), key=lambda one: team_seconds(one, device))
    total = helped_seconds(alone, team_seconds(best, device), best.likely_trips)
    return best if HELP_GAIN * total < alone * loop.likely_trips else loop


def _block_teams(graph: Graph, node: Node, device: Device) -> TeamLoop:
    """Return the teams of a block. On a CPU they are small unless large ones are estimated to be faster: there is more
    to share out among cores, one of which may come late, and what a team caches stays in the first cache.
    """
    if STREAMED in node.attributes:  # Each of its rows is a tile.
        rows = graph[node.operands[-1]].tensor.dims[0]
        return team_loop(graph, node, device, single=rows == 1, most=1)
    large = sums_apart(team_loop(graph, node, device), device)
    if not device.target.lanes_are_vectors or large.rows == 1:
        return large
    small = sums_apart(team_loop(graph, node, device, most=FEW_ROWS), device)
    if small.rows <= large.rows or team_seconds(small, device) > ROUNDING_UP * team_seconds(large, device):
        return large
    return small


def _spread(single: TeamLoop, device: Device) -> TeamLoop | None:
    """Return a single team over the blocks that it is estimated fastest on, one for each multiprocessor at most;
    ``None`` where that is one block, on a CPU, where no block may wait for another, and where threads add to the same
    places, in whatever order.
    """
    waits = not device.target.lanes_are_vectors and device.blocks_may_wait
    if not waits or any(sweep.adds for group in barrier_groups(single) for sweep in group):
        return None
    candidates = [single]
    blocks = device.multiprocessors
    while blocks > 1 and len(candidates) <= SPREADS:
        candidates.append(replace(single, blocks=blocks))
        blocks //= 2
    best = min(candidates, key=lambda loop: (team_seconds(loop, device), loop.blocks))
    return best if best.blocks > 1 else None
