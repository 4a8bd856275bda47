"""How long a compiler has had a processor, or slept: what it waits for one on a busy machine is not its own time."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 10.0
"""How much longer by the clock a compiler may take that waits for a processor: beside one busy thread, one of low
priority has a tenth of a core."""

LOOK, _SHORTEST = 1.0, 0.05
"""Seconds between two looks at what it has waited."""

_PROCESSES = Path("/proc")


class Stopwatch:
    """Counts the seconds of a group of processes, or of a thread of this one, from now on; without those for which what
    belongs to it was ready to run and had no processor. Where the system does not tell (``schedstat`` of Linux does),
    what has a ``low`` priority is given all that patience allows."""

    def __init__(
        self, allowed: float, *, group: int | None = None, thread: int | None = None, low: bool = False
    ) -> None:
        self._allowed, self._group, self._thread, self._low = allowed, group, thread, low
        self._began = time.monotonic()
        self._waited: dict[Path, float] = {}

    def next_look(self) -> float | None:
        """Return seconds until it is to be asked whether the time is over; ``None`` for never."""
        return None if math.isinf(self._allowed) else min(LOOK, max(self._allowed - self._own(), _SHORTEST))

    def over(self) -> bool:
        """Return whether the time that is allowed has been used. To be asked at each look: of what has ended, as of a
        compiler before its linker, nobody tells any more how long it has waited."""
        for folder in self._folders():
            if (waited := _waited(folder)) is not None:
                self._waited[folder] = waited
        untold = self._low and not self._waited
        return (self._own() >= self._allowed and not untold) or self._clock() >= PATIENCE * self._allowed

    def _clock(self) -> float:
        return time.monotonic() - self._began

    def _own(self) -> float:
        return self._clock() - sum(self._waited.values())

    def _folders(self) -> Iterator[Path]:
        if self._thread is not None:
            yield _PROCESSES / "self" / "task" / str(self._thread)
        if self._group is not None:
            yield from _of_group(self._group)


def _of_group(group: int) -> Iterator[Path]:
    """Yield the folders of the processes of a group."""
    try:
        numbers = [entry.name for entry in os.scandir(_PROCESSES) if entry.name.isdecimal()]
    except OSError:
        return
    for number in numbers:
        try:
            if os.getpgid(int(number)) == group:
                yield _PROCESSES / number
        except OSError:  # It has ended.
            continue


def _waited(folder: Path) -> float | None:
    """Return seconds for which a process, or a thread, was ready and had no processor; None where that is not told."""
    try:
        return int((folder / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
