"""An end to work that nobody waits for, where it takes more of the processor, or of memory, than it is given."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_STEP, _SHORTEST = 0.5, 0.05
"""Seconds between two looks at the processor time; less where the budget is less."""


class BudgetSpent(BaseException):
    """It is used up: the argument says what, "time" or "memory". No ``Exception``: it comes anywhere, also where some
    of those are expected."""


@contextmanager
def within(seconds: float | None, memory: int | None = None) -> Iterator[None]:
    """Raise ``BudgetSpent`` in what is done meanwhile once this process and those that it has started have used so
    many seconds of processor time, or have so many bytes of memory; ``None`` for no end. Where there is none to spend,
    nothing is begun.

    For the main thread of a process of its own, which is of no use after that. A compiler that runs is ended. It is
    raised again at each look: what is raised in a finaliser, or while garbage is collected, Python ignores.
    """
    if seconds is None and memory is None:
        yield
        return
    end = None if seconds is None else _used() + seconds
    over = False

    def look(number: int, frame: Any) -> None:
        del number, frame
        if over:
            return
        if end is not None and _used() > end:
            raise BudgetSpent("time")
        if memory is not None and _held(os.getpid()) > memory:
            raise BudgetSpent("memory")

    if seconds is not None and seconds <= 0:
        raise BudgetSpent("time")
    look(0, None)
    before = signal.signal(signal.SIGALRM, look)
    step = _STEP if seconds is None else min(_STEP, max(seconds, _SHORTEST))
    signal.setitimer(signal.ITIMER_REAL, step, step)
    try:
        try:
            yield
        finally:
            over = True
    finally:
        over = True  # Also where it was raised before the line above.
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _used() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def _held(pid: int) -> int:
    """Return bytes that a process, and all below it, have for themselves; 0 where the system does not tell."""
    process, held = Path("/proc") / str(pid), 0
    try:
        for line in (process / "status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                held += int(line.split()[1]) << 10
        below = [
            int(child) for task in (process / "task").iterdir() for child in (task / "children").read_text().split()
        ]
    except OSError:  # It is gone, or there is no such folder.
        return held
    return held + sum(_held(int(child)) for child in below)
