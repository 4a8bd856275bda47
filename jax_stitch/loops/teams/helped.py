"""Which sweeps of a CPU's one team are divided among cores, and what that costs: see ``backend/runtime/helpers.h``."""

from __future__ import annotations

from math import ceil, inf, prod

from jax_stitch.analysis.patterns.sweeps import Sweep
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.devices import Device
from jax_stitch.loops.teams.results import reads_across
from jax_stitch.util.values import replace

MEETING_CLOCKS = 800.0
"""What each helper costs in a divided sweep: until it sees that the sweep is open, has taken a piece of it and fetched
what that reads, and the leader sees that it is done and fetches what it wrote. Measured on two cores with one third
cache.
"""

WORTH_MEETING = 2.0
"""By what factor more a divided sweep has to save than meeting costs."""

LINE = 16
"""Neighbouring places that one thread does: their results are a line of memory."""

MOST_PIECES = 4
"""As in ``backend/runtime/helpers.h``."""

WAKE_SECONDS, CALL_SECONDS = 5e-6, 5e-6
"""Until a thread of the pool is there to help, and what a call takes longer that asks one. Measured where calls follow
each other: the thread then still waits busily for work. One that sleeps takes 35 and 40 microseconds; a loop that is
too short for that finds it out (``backend/runtime/helpers.h``).
"""

HELP_GAIN = 1.15
"""By what factor a loop with helpers has to be estimated faster than without."""


def divided(loop: TeamLoop, sweep: Sweep, clocks: float) -> Sweep:
    """Return a sweep that takes so many clocks alone, divided if that is worth it."""
    saved = clocks - clocks / loop.pieces
    if loop.pieces == 1 or not _is_divisible(loop, sweep) or saved < WORTH_MEETING * _meeting(loop.pieces):
        return sweep
    return replace(sweep, sharing=replace(sweep.sharing, pieces=loop.pieces))


def _is_divisible(loop: TeamLoop, sweep: Sweep) -> bool:
    """Return whether it has pieces of several lines of memory, in which each place is by itself."""
    if sweep.inner is not None or sweep.adds or prod(sweep.sizes) < loop.pieces * LINE:
        return False
    if sweep.reduces:
        return sweep.sharing.split > 1 or sweep.runs * ceil(sweep.lanes / LINE) >= loop.pieces
    is_even = sweep.runs >= loop.pieces or (sweep.runs == 1 and sweep.lanes >= loop.pieces * LINE)
    return is_even and not reads_across(loop, sweep)


def divided_clocks(sweep: Sweep, clocks: float) -> float:
    """Return the clocks of a divided sweep, of which one thread alone takes so many."""
    pieces = sweep.sharing.pieces
    return clocks if pieces == 1 else clocks / pieces + _meeting(pieces)


def _meeting(pieces: int) -> float:
    return MEETING_CLOCKS * (pieces - 1)


def may_have_helpers(loop: TeamLoop, device: Device) -> bool:
    """Return whether helpers can follow a loop: one team's, whose every step goes through the same sweeps."""
    is_cpu = device.target.lanes_are_vectors and device.multiprocessors > 1
    return is_cpu and loop.rows == 1 and bool(loop.carried) and loop.trips is not None and not loop.inner


def helped_seconds(alone: float, helped: float, trips: int) -> float:
    """Return the seconds of all iterations, if helpers come after a while; one takes so long without and with them."""
    before = WAKE_SECONDS / alone
    return inf if before >= trips else CALL_SECONDS + WAKE_SECONDS + (trips - before) * helped
