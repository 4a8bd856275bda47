"""Loop distribution of the sums that lanes of a CPU share: what is computed of them is a sweep of its own.

Where neighbouring lanes go along the steps of a sum, each place is finished by itself: a function of it is computed for
one place at a time. In a sweep that follows, it is computed for a vector of places.
"""

from __future__ import annotations

from dataclasses import replace

from jax_stitch.analysis.contraction import contraction
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.devices import Device
from jax_stitch.loops.cost.team_cost import team_seconds
from jax_stitch.loops.teams.sharing import shared_out


def sums_apart(loop: TeamLoop, device: Device) -> TeamLoop:
    """Return the loop with what is computed of split sums in sweeps of its own, where that is estimated faster."""
    if not device.target.lanes_are_vectors:
        return loop
    sweeps = (s for group in shared_out(loop, device)[1] for s in group if s.sharing.split > 1 and s.sizes)
    finished = {w.node for s in sweeps for w in s.writes if contraction(loop.body, w.node) is None}
    if finished <= loop.apart:
        return loop
    other = replace(loop, apart=loop.apart | finished)
    return other if team_seconds(other, device) < team_seconds(loop, device) else loop
