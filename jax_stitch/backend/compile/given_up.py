"""Kernels that a compiler came to no end with, remembered on disk: no later process waits for that again.

The compiler, or the machine, may only have had a bad day. So they are tried again after some days, and where there is
more time for them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Struct

from jax_stitch.backend.compile import effort
from jax_stitch.backend.compile.errors import CompilerTimeout
from jax_stitch.backend.compile.process import together
from jax_stitch.util import store

_T = TypeVar("_T")
KIND = "given_up"
DAYS = 7
"""After which a kernel is tried again."""


class _Mark(Struct, frozen=True):
    """What is remembered of a kernel."""

    day: str
    """As in 2026-12-31."""
    seconds: float
    """That the compiler had."""
    reason: str


def compiled(id: str, build: Callable[[], _T]) -> _T:
    """Return what ``build`` has a compiler make of the kernel ``id``.

    Raises ``CompilerTimeout`` where that comes to no end; at once where it came to none with as much time before.
    """
    mark = _mark_of(id)
    if mark is not None and effort.seconds() <= mark.seconds:
        raise CompilerTimeout(
            f"{mark.reason} That was on {mark.day}: it is tried again {DAYS} days later, or after a call of retry()."
        )
    try:
        return build()
    except CompilerTimeout as slow:
        others = together.get()
        if others is None or not others.given_up:  # Else it was stopped for another's sake.
            made = _Mark(datetime.date.today().isoformat(), effort.seconds(), str(slow))
            store.write(KIND, id, msgspec.json.encode(made))
        raise


def is_marked(id: str) -> bool:
    """Return whether a compiler came to no end with a kernel in the last days."""
    return _mark_of(id) is not None


def forget() -> None:
    """Try all kernels again."""
    store.clear((KIND,))


def _mark_of(id: str) -> _Mark | None:
    data = store.read(KIND, id)
    if data is None:
        return None
    try:
        mark = msgspec.json.decode(data, type=_Mark)
        age = datetime.date.today() - datetime.date.fromisoformat(mark.day)
    except (msgspec.DecodeError, ValueError):  # Of another version of this package.
        return None
    return mark if 0 <= age.days < DAYS else None
