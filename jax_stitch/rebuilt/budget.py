"""An end to work that nobody waits for, where it takes more of the processor than it is given."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_STEP, _SHORTEST = 0.5, 0.01
"""Seconds between two looks at the processor time; less where the budget is less."""


class BudgetSpent(BaseException):
    """The time is used up. No ``Exception``: it comes anywhere, also where some of those are expected."""


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raises ``BudgetSpent`` in what is done meanwhile once this process and those that it has started have used so
    many seconds of processor time; ``None`` for no end.

    For the main thread of a process of its own, which is of no use after that. A compiler that runs is ended.
    """
    if seconds is None:
        yield
        return
    end = _used() + seconds

    def look(number: int, frame: Any) -> None:
        del number, frame
        if _used() > end:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            raise BudgetSpent

    before = signal.signal(signal.SIGALRM, look)
    step = min(_STEP, max(seconds, _SHORTEST))
    signal.setitimer(signal.ITIMER_REAL, step, step)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _used() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(found.ru_utime + found.ru_stime for found in spent)
