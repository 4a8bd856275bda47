"""Two programs of one function given the same calls, some each in turn, until it is clear whether the stitched one is
faster.

Each call runs one of them, since it may donate its arguments: unlike calls are compared, so medians are. Nothing here
knows of JAX.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from jax_stitch.jit.programs.verdicts import BAR


class Kind(StrEnum):
    """The two programs."""

    PLAIN = "plain"
    STITCHED = "stitched"


CLEARLY = 1 / BAR
"""The stitched program stays if its median time is at most this part of the other's."""

_FEWEST, _MOST = 6, 175
"""Timed calls of each."""
_FEWEST_LONG, _LONG = 3, 0.5
"""Fewer are enough where a call takes as many seconds: noise is a small part of it."""
_RUN, _QUICK = 4, 0.02
"""Calls of one program in a row where one takes less than as many seconds. The first of them is not timed: the other
program's results lie where its own will, and each of its pages is then touched for the first time."""
_ORDER = (Kind.PLAIN, Kind.STITCHED, Kind.STITCHED, Kind.PLAIN)
"""Of the runs: neither program always follows the other."""
_SECONDS = 1.0
"""Of all timed calls together, after which no more are made than it takes."""
_SURE = 3.2
"""Standard deviations of chance from which on the order of the times, all taken together, is none: what 8 of each show
that do not overlap, and hardly ever noise, however often one looks."""
_MOMENT, _PAUSE = 0.1, 0.1
"""Seconds of timed calls up to which a stitched program that is not faster gets a second look, as long after the first:
the verdict is kept, and in so short a time something else on the machine may have held up the one program alone.
"""


@dataclass(frozen=True, slots=True)
class Times:
    """Median seconds of a call."""

    plain: float
    stitched: float
    error: float = 0.0
    """The standard error of the logarithm of their ratio."""

    @property
    def stays(self) -> bool:
        """Return whether the stitched program is clearly faster."""
        return self.stitched <= CLEARLY * self.plain


@dataclass(slots=True)
class Trial:
    """The calls made so far. For several threads: one measures at a time, the others are not kept waiting."""

    _samples: dict[Kind, list[float]] = field(default_factory=lambda: {kind: [] for kind in Kind})
    _warm: set[Kind] = field(default_factory=set)
    _turn: int = 0
    """The number of the run, and of calls in it so far; what the last call ran."""
    _in_run: int = 0
    _last: Kind | None = None
    _not_before: float = 0.0
    """When the second look begins; 0 until one is due."""
    _measuring: threading.Lock = field(default_factory=threading.Lock)
    seconds: float = 0.0
    """That its calls have taken."""

    def begin(self) -> Kind | None:
        """Return what the next call is to run, to be told to ``end``; None where it is not to be timed: while another
        thread's is, and before a second look.
        """
        if time.monotonic() < self._not_before:
            return None
        if not self._measuring.acquire(blocking=False):
            return None
        if self._warm == {Kind.PLAIN} and not self._in_run:
            return Kind.STITCHED
        return _ORDER[self._turn % len(_ORDER)]

    def end(self, kind: Kind, seconds: float | None) -> Times | None:
        """Take note of a call begun, with None where it failed; returns the times once they are clear."""
        try:
            if seconds is None:
                return None
            self.seconds += seconds
            is_cold, is_quick = kind not in self._warm, seconds < _QUICK
            follows_other, self._last = kind is not self._last, kind
            self._warm.add(kind)
            if is_quick or not is_cold:
                self._in_run += 1
                if self._in_run >= _RUN or not is_quick:
                    self._turn, self._in_run = self._turn + 1, 0
            if is_cold or (follows_other and is_quick):  # The first call of a program loads it.
                return None
            self._samples[kind].append(seconds)
            times = decided(self._samples[Kind.PLAIN], self._samples[Kind.STITCHED])
            return None if times is not None and self._looks_again(times) else times
        finally:
            self._measuring.release()

    def _looks_again(self, times: Times) -> bool:
        """Return whether another look is due, which is then begun."""
        is_moment = sum(map(sum, self._samples.values())) < _MOMENT
        if times.stays or not is_moment or self._not_before:
            return False
        self._not_before = time.monotonic() + _PAUSE
        self._turn = self._in_run = 0
        for samples in self._samples.values():
            samples.clear()
        return True

    @property
    def calls(self) -> int:
        """Call timed so far."""
        return sum(map(len, self._samples.values()))


def decided(plain: Sequence[float], stitched: Sequence[float]) -> Times | None:
    """Return the medians, if they are clear, or as clear as a few calls can make them; else None."""
    count = min(len(plain), len(stitched))
    if not count:
        return None
    error = math.hypot(_error(plain), _error(stitched))
    times = Times(statistics.median(plain), statistics.median(stitched), error)
    fewest = _FEWEST_LONG if min(times.plain, times.stitched) > _LONG else _FEWEST
    if count < fewest:
        return None
    spent = sum(plain) + sum(stitched)
    if count >= _MOST or spent > _SECONDS:
        return times
    return times if abs(_order(plain, stitched)) > _SURE or (fewest < _FEWEST and _apart(plain, stitched)) else None


def _error(samples: Sequence[float]) -> float:
    """Return the standard error of the logarithm of the median, by the deviations that are usual: outliers count as
    one more each."""
    median = statistics.median(samples)
    deviation = 1.4826 * statistics.median(abs(x - median) for x in samples)
    return 1.2533 * deviation / (median * math.sqrt(len(samples)))


def _order(plain: Sequence[float], stitched: Sequence[float]) -> float:
    """Return how far from chance it is which of the two, the plain one's times cut to the bar, has the longer times
    (Mann and Whitney's test): outliers count as one more longer time, however long.
    """
    n, m = len(plain), len(stitched)
    longer = sum((s < CLEARLY * p) + 0.5 * (s == CLEARLY * p) for s in stitched for p in plain)
    return float((longer / (n * m) - 0.5) / ((n + m + 1) / (12 * n * m)) ** 0.5)


def _apart(plain: Sequence[float], stitched: Sequence[float]) -> bool:
    """Return whether all times of the one are longer than all of the other."""
    return max(stitched) < CLEARLY * min(plain) or min(stitched) > CLEARLY * max(plain)
