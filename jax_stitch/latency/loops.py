"""What the threads of a loop in teams do: the clocks of its sweeps, as often as it runs."""

from __future__ import annotations

from collections import defaultdict
from math import ceil

from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.devices import Device
from jax_stitch.latency.classes import GROUP, TEAM, TURN, Work
from jax_stitch.loops.teams.sharing import clocks
from jax_stitch.schedule.team import Team


def team_work(team: Team, loop: TeamLoop, device: Device) -> Work:
    """Return a loop that teams of threads run: by the clocks that its layouts were chosen by, for each warp of a
    team.
    """
    one = sum(clocks(loop, sweep, team.threads, device) for group in team.groups for sweep in group)
    warps = ceil(team.threads / device.warp_size) if not device.target.lanes_are_vectors else 1
    total = loop.likely_trips * loop.rows * loop.blocks * one * device.warp_size * warps
    barriers = loop.likely_trips * loop.rows * len(team.groups)
    return defaultdict(float, {TEAM: total, TURN: barriers, GROUP: loop.rows})
