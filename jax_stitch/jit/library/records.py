"""Measured times in a database that concurrent processes share: what is there is read, what is new is added once."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from jax_stitch.jit.library import database
from jax_stitch.jit.library.station import Station
from jax_stitch.util import store

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Measured:
    """The time of one of several programs that were run in turn."""

    seconds: float
    """Per call: the first one's median, times the median of the rounds' ratios to the first one."""
    ahead: float
    """The share of rounds, 0 to 1, in which it was faster than the first one."""
    rounds: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What the library holds, of this user on this machine."""

    path: Path
    times: int
    stations: int
    """Devices, counted separately for each driver, compiler or version of JAX that they had."""


def read(station: Station, kernels: Sequence[str]) -> dict[str, Measured] | None:
    """Return the times of kernels (hashes) that were measured in turn on a station, the first of them being what the
    others are compared with; None unless exactly these were, there.
    """
    turns = _turns(kernels)

    def rows(connection: sqlite3.Connection) -> list[tuple[str, float, float, int]]:
        wanted = "SELECT kernel, seconds, ahead, rounds FROM times WHERE station = ? AND turns = ?"
        return connection.execute(wanted, (station.key, turns)).fetchall()

    by_kernel = {kernel: Measured(seconds, ahead, n) for kernel, seconds, ahead, n in _ask(rows) or ()}
    return {kernel: by_kernel[kernel] for kernel in kernels} if by_kernel.keys() == set(kernels) else None


def write(station: Station, times: Mapping[str, Measured]) -> dict[str, Measured]:
    """Add times measured in turn, the first being what the others are compared with.

    Returns what the library holds of them then: another process may have been first, and both are to choose alike.
    Where nothing can be written these very times, after one warning.
    """
    turns, now = _turns(tuple(times)), int(time.time())
    rows = [(station.key, turns, kernel, m.seconds, m.ahead, m.rounds, now) for kernel, m in times.items()]

    def add(connection: sqlite3.Connection) -> None:
        with connection:  # One transaction: all of the turns, or none.
            connection.execute("BEGIN IMMEDIATE")
            known = "SELECT 1 FROM times WHERE station = ? AND turns = ? LIMIT 1"
            if connection.execute(known, (station.key, turns)).fetchone() is None:
                connection.execute("INSERT OR IGNORE INTO stations VALUES (?, ?)", (station.key, str(station)))
                connection.executemany("INSERT INTO times VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    _ask(add)
    return read(station, tuple(times)) or dict(times)


def summary() -> Summary:
    """Return how much there is; makes no library where there is none."""
    path = database.path()

    def count(connection: sqlite3.Connection) -> tuple[int, int]:
        times = connection.execute("SELECT count(*) FROM times").fetchone()[0]
        return times, connection.execute("SELECT count(DISTINCT station) FROM times").fetchone()[0]

    times, stations = (_ask(count) if path.exists() else None) or (0, 0)
    return Summary(path, times, stations)


@contextmanager
def measuring_alone() -> Iterator[None]:
    """Let others that want to measure wait for this process, for a while: they would slow each other, and find what the
    first one measured.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # No folder to lock: each measures by itself.
            held.enter_context(database.locked("measuring", seconds=120.0))
        yield


def _turns(kernels: Sequence[str]) -> str:
    """Return a hash of what is measured in turn: the first, then the others in any order."""
    return store.key(first=kernels[0], others=sorted(kernels[1:]))


def _ask(question: Callable[[sqlite3.Connection], _T]) -> _T | None:
    """Return the answer to a question; None, after one warning, where there is no library to be had.

    A library that is damaged is set aside, and the question put to a new one.
    """
    try:
        try:
            with database.connected() as connection:
                return question(connection)
        except sqlite3.DatabaseError as error:
            if not database.set_aside(error):
                raise
        with database.connected() as connection:
            return question(connection)
    except (sqlite3.Error, OSError) as error:
        database.warn_unusable(error)
        return None
