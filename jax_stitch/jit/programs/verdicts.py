"""Whether a program is better stitched, kept on disk beside the programs with the measurements that show it.

One process measures one plan on one day: two of them may differ by more than the bar. So a verdict keeps what each
process has measured. While the bar lies within the spread of that, the verdict is open: a later process measures again.
"""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from jax_stitch.util import store

_KIND = "verdicts"

BAR = 1.05
"""How many times as fast as ``jax.jit`` a stitched program has to be to stay."""
_BETWEEN, _WEIGHT = 0.1, 2
"""What processes are taken to differ by (the standard deviation of the logarithm of a speed-up), and the number of
measurements that this counts for beside the real ones."""
_DEVIATIONS = 2.0
"""Standard errors on either side of the mean that a spread reaches."""
_INSTANT = 1e-9
"""Seconds that no call takes less than, as far as clocks tell."""
_MOST = 5
"""Measurements of a program, after which its verdict is no longer open."""


class Measurement(Struct, frozen=True):
    """What one process has measured."""

    speedup: float
    error: float = 0.0
    """The standard error of its logarithm, by the times of single calls."""
    day: str = ""
    """As in 2026-12-31."""


class Verdict(Struct, frozen=True):
    """What a function runs as from now on, and why."""

    stitched: bool
    reason: str
    """In a few words: "1.40 times jax.jit", "nothing worth stitching: ..."."""
    plain_seconds: float | None = None
    """Of a call under ``jax.jit``, and stitched: medians of real calls, taken in turn, in the last process that has
    measured. None where nothing was timed."""
    stitched_seconds: float | None = None
    programs: tuple[str, ...] = ()
    """The names of the rebuilt programs that it needs, or would need."""
    kernels: int = 0
    """Launches of stitched kernels in a call, in place of so many of XLA's."""
    replaced: int = 0
    measurements: tuple[Measurement, ...] = ()

    @property
    def speedup(self) -> float | None:
        """Return the time under ``jax.jit`` over the time stitched: the mean of all measurements."""
        if self.measurements:
            return _mean(self.measurements)
        if self.plain_seconds is None or not self.stitched_seconds:
            return None
        return self.plain_seconds / self.stitched_seconds

    @property
    def spread(self) -> tuple[float, float] | None:
        """Return the bounds that the speed-up lies between, as far as the measurements tell."""
        return _spread(self.measurements) if self.measurements else None

    @property
    def is_open(self) -> bool:
        """Return whether a later process is to measure again."""
        bounds = self.spread
        return bounds is not None and len(self.measurements) < _MOST and bounds[0] < BAR < bounds[1]


def measured(plain_seconds: float, stitched_seconds: float, error: float, before: Verdict | None = None) -> Verdict:
    """Return the verdict by the times of this process and what earlier ones have measured."""
    day = datetime.date.today().isoformat()
    speedup = max(plain_seconds, _INSTANT) / max(stitched_seconds, _INSTANT)
    earlier = before.measurements if before is not None else ()
    all_of_them = (*earlier, Measurement(speedup, error, day))
    mean = _mean(all_of_them)
    stays = mean >= BAR
    low, high = _spread(all_of_them)
    count = "1 measurement" if len(all_of_them) == 1 else f"{len(all_of_them)} measurements"
    evidence = f"{low:.2f} to {high:.2f} by {count}, {day}"
    if stays:
        reason = f"{mean:.2f} times jax.jit ({evidence})"
    else:
        reason = f"as the stitched program is {mean:.2f} times as fast ({evidence}), and {BAR:g} is asked for"
    return Verdict(stays, reason, plain_seconds, stitched_seconds, measurements=all_of_them)


def keep(name: str, verdict: Verdict) -> None:
    """Store the verdict on a program, for ``load`` in whatever process."""
    store.write(_KIND, name, msgspec.json.encode(verdict))


def load(name: str) -> Verdict | None:
    """Return the verdict on the program of that name; None where there is none, or one that cannot be read."""
    data = store.read(_KIND, name)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Verdict)
    except msgspec.DecodeError:  # Kept by another version of this package.
        return None


def forget(name: str) -> None:
    """Remove the verdict on a program."""
    store.remove(_KIND, name)


def _mean(measurements: Sequence[Measurement]) -> float:
    return statistics.geometric_mean(m.speedup for m in measurements)


def _spread(measurements: Sequence[Measurement]) -> tuple[float, float]:
    logarithms = [math.log(m.speedup) for m in measurements]
    count, mean = len(logarithms), statistics.fmean(logarithms)
    squares = _WEIGHT * _BETWEEN**2 + sum((x - mean) ** 2 for x in logarithms)
    between = squares / (_WEIGHT + count - 1)
    within = statistics.fmean(m.error**2 for m in measurements)
    error = _DEVIATIONS * math.sqrt((between + within) / count)
    return math.exp(mean - error), math.exp(mean + error)
