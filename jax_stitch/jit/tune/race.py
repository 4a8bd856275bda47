"""Programs of the same results timed in turn, or what the library knows of that."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from jax_stitch.jit import library
from jax_stitch.jit.library import Measured, Station
from jax_stitch.util.timing import Timing, time_programs

Program = Callable[[Sequence[Any]], Sequence[Any]]
"""From arrays to arrays, to be traced."""

CLEARLY = 0.75
"""The share of rounds in which a program has to be faster than another to be called so: noise alone is by half."""

IMPOSSIBLE = Measured(math.inf, 0.0, 0)
"""The time of what no compiler took."""

_ROUNDS = 12
_ENOUGH = 8
"""Rounds by which three quarters are no chance."""

_ATTEMPTS = 3
"""Times that a race is run at most."""


@dataclass(frozen=True, eq=False)
class Race:
    """Programs by key (a hash of what is run), the first being what the others have to beat."""

    keys: tuple[str, ...]
    programs: Callable[[], Mapping[str, Program]]
    """Made, and compiled, only where they have to be timed; of those but the first some may be impossible."""
    arguments: Callable[[], Sequence[tuple[jax.Array, ...]]]
    """Sets of arguments; each call has the next."""
    seconds: float
    """To spend on it."""


def run(race: Race, station: Station) -> dict[str, Measured]:
    """Return the times of a race, from the library where it has been run on this station, else measured and kept."""
    known = library.read(station, race.keys)
    if known is not None:
        return known
    with library.measuring_alone():
        known = library.read(station, race.keys)  # by who was first
        return known or library.write(station, measure(race))


def measure(race: Race) -> dict[str, Measured]:
    """Run a race: its programs in turn, on fresh arguments; again, a few times, where noise leaves it open."""
    programs, (one, *others) = race.programs(), race.arguments()
    runnable = {key: _over_arrays(program) for key, program in programs.items()}
    by_key: dict[str, Timing] = {}
    for _ in range(_ATTEMPTS):
        timings = time_programs(runnable, one, rounds=_ROUNDS, seconds=race.seconds, others=others)
        by_key = {key: _together(by_key.get(key), timing) for key, timing in timings.items()}
        if is_settled([measured(by_key[race.keys[0]], by_key[key]) for key in race.keys[1:] if key in by_key]):
            break
    first = by_key[race.keys[0]]
    return {key: measured(first, by_key[key]) if key in by_key else IMPOSSIBLE for key in race.keys}


def is_settled(times: Sequence[Measured]) -> bool:
    """Return whether the best of these is clearly faster than the first program, or clearly slower, after rounds
    enough.
    """
    best = min(times, key=lambda m: m.seconds)
    return best.rounds >= _ENOUGH and not 1 - CLEARLY < best.ahead < CLEARLY


def _together(before: Timing | None, timing: Timing) -> Timing:
    return timing if before is None else replace(timing, samples=(*before.samples, *timing.samples))


def measured(first: Timing, timing: Timing) -> Measured:
    """Return a program's time beside the first one's, round by round: what slows a round slows both."""
    pairs = list(zip(timing.samples, first.samples, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    ahead = sum(a < b for a, b in pairs) / len(pairs)
    return Measured(first.median * ratio, ahead, len(pairs))


def beats_first(time: Measured, first: Measured) -> bool:
    """Return whether a program is faster than the first one, and that beyond noise."""
    return time.seconds < first.seconds and time.ahead >= CLEARLY


def _over_arrays(program: Program) -> Callable[..., Any]:
    def run(*arrays: Any) -> list[Any]:
        return list(program(arrays))

    return jax.jit(run)
