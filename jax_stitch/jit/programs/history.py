"""The outcomes of each stitched function in this process, for its ``status()`` and its ``retry()``.

A call that JAX runs by itself is not all: a function is also stitched inside other programs, where JAX lowers it once
and never asks again. What came of that is noted here.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from jax_stitch.backend.compile import given_up
from jax_stitch.jit.programs import on_disk, verdicts
from jax_stitch.jit.programs.verdicts import Verdict

if TYPE_CHECKING:
    from jax_stitch.jit.primitive import Request

_MOST = 1000
"""Outcomes that are remembered of a function; the first go first."""


class Outcome(Struct, frozen=True):
    """The outcome of one place where a function was lowered."""

    types: str
    """The types of its arguments, for people."""
    place: str
    """The program that it is part of; "" for one of its own."""
    outer: str = ""
    """The stitched function that it is part of, which decides for it; "" where there is none."""
    stitched: bool = False
    reason: str = ""
    """Why it is not."""
    kernels: int = 0
    replaced: int = 0
    """Launches of stitched kernels in a call, in place of so many of XLA's."""
    planning: float = 0.0
    compiling: float = 0.0
    """Seconds that these took."""
    verdict: Verdict | None = None
    """The verdict that was kept of it, if there is one."""


class _History:
    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, ...], Outcome] = {}
        self.names: set[str] = set()


def note(origin: Request, outcome: Outcome, results: str) -> None:
    """Remember an outcome, in place of an earlier one of the same types (``results`` too) in the same program."""
    with _lock:
        history = _histories.setdefault(origin, _History())
        key = outcome.place, outcome.outer, outcome.types, results
        history.outcomes.pop(key, None)
        history.outcomes[key] = outcome
        while len(history.outcomes) > _MOST:
            del history.outcomes[next(iter(history.outcomes))]


def named(origin: Request, names: Iterable[str]) -> None:
    """Remember that something about a function is kept under these names."""
    with _lock:
        _histories.setdefault(origin, _History()).names.update(names)


def outcomes(origin: Request) -> tuple[Outcome, ...]:
    """Return what is remembered of a function."""
    with _lock:
        history = _histories.get(origin)
        return () if history is None else tuple(history.outcomes.values())


def forget(origin: Request) -> None:
    """Forget the outcomes; what is kept on disk stays."""
    with _lock:
        if origin in _histories:
            _histories[origin].outcomes.clear()


def remove_kept(origin: Request) -> None:
    """Remove from the disk the verdicts and the programs of a function that this process has met, and what is known of
    kernels that compilers came to no end with, its own among them."""
    with _lock:
        names = _histories[origin].names.copy() if origin in _histories else set()
    given_up.forget()
    for name in names:
        verdicts.forget(name)
        on_disk.forget(name)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


_lock = threading.Lock()
"""Held for moments only."""
_histories: weakref.WeakKeyDictionary[Request, _History] = weakref.WeakKeyDictionary()

os.register_at_fork(after_in_child=_after_fork)
