"""What stitching a function came to, for whoever has it lowered and asks with ``recorded``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct, field

from jax_stitch.programs.verdicts import Verdict


class NotWorthStitching(Exception):
    """The function is better left to ``jax.jit``; the message says why, as the end of a sentence."""


class Record(Struct):
    """Filled while a function is lowered."""

    programs: list[str] = field(default_factory=list)
    """The names of its rebuilt programs."""
    kernels: int = 0
    """Launches of stitched kernels in a call."""
    replaced: int = 0
    """Launches of XLA's kernels in whose place they are."""
    forms: list[str] = field(default_factory=list)
    """A hash of each program: equal where processes have made the same."""
    kept: Verdict | None = None
    """What was known of it."""
    left: str | None = None
    """Why it is better left to ``jax.jit``, if it is."""


@contextmanager
def recorded() -> Iterator[Record]:
    """What this thread stitches meanwhile."""
    record = Record()
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


def current() -> Record:
    """The record that is wanted, or one that nobody reads."""
    return _record.get() or Record()


_record: ContextVar[Record | None] = ContextVar("jax_stitch_record", default=None)
