"""Processes of a benchmark that compile side by side, and measure while no other does either.

``beside`` is around what prepares: any number of processes at a time. ``alone`` is around what is measured: it waits
until nobody prepares, and while anybody waits for it nobody begins to. They are locks of files: a process that ends
gives them back.
"""

from __future__ import annotations

import fcntl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_held: list[IO[str]] = []


def _file(name: str) -> IO[str]:
    return (Path(tempfile.gettempdir()) / f"jax-stitch-bench.{name}.lock").open("w")


@contextmanager
def beside() -> Iterator[None]:
    """While no process measures, nor waits to; until ``alone`` is entered inside."""
    while not _begun():
        time.sleep(0.01)
    try:
        yield
    finally:
        _give_back()


def _begun() -> bool:
    with _file("waiting") as waiting:
        try:
            fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
            running = _file("running")
            fcntl.flock(running, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    _held.append(running)
    return True


PATIENCE = 30.0
"""Seconds for which who measures waits for those that prepare: what takes longer is measured beside."""


@contextmanager
def alone() -> Iterator[None]:
    """While no other process measures, and none prepares but what takes longer than ``PATIENCE``."""
    _give_back()
    with _file("waiting") as waiting, _file("measuring") as measuring, _file("running") as running:
        fcntl.flock(waiting, fcntl.LOCK_SH)
        fcntl.flock(measuring, fcntl.LOCK_EX)
        deadline = time.monotonic() + PATIENCE
        while not _locked(running) and time.monotonic() < deadline:
            time.sleep(0.01)
        yield


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _give_back() -> None:
    while _held:
        _held.pop().close()
