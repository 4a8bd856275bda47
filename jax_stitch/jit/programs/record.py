"""What stitching a function came to, for whoever has it lowered and asks with ``recorded``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from msgspec import Struct, field

from jax_stitch.jit.programs.verdicts import Verdict


class NotWorthStitching(Exception):
    """The function is better left to ``jax.jit``; the message says why, as the end of a sentence."""


class GivenUp(NotWorthStitching):
    """So it is for now, since something has run out. Nothing of that is kept: another time it may be enough."""


class Record(Struct):
    """Filled while a function is lowered."""

    owner: Any = None
    """The function whose calls these are: what is lowered for them is told by whoever made this record."""
    measures: bool = False
    """True where real calls show afterwards what is faster: then an open verdict is no obstacle."""
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
    lasting: bool = True
    """True where that, and what was made, would be the same another time."""
    planning: float = 0.0
    """Seconds that planning took, and compiling what was planned; 0 where it was on disk."""
    compiling: float = 0.0

    def add(self, other: Record) -> None:
        """Take over what was recorded of a part."""
        self.programs += other.programs
        self.forms += other.forms
        self.kernels, self.replaced = self.kernels + other.kernels, self.replaced + other.replaced
        self.planning, self.compiling = self.planning + other.planning, self.compiling + other.compiling
        self.kept, self.left = other.kept or self.kept, other.left or self.left
        self.lasting = self.lasting and other.lasting


@contextmanager
def recorded(owner: Any = None, *, measures: bool = False) -> Iterator[Record]:
    """Record what this thread stitches meanwhile."""
    record = Record(owner, measures)
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


def current() -> Record:
    """Return the record that is wanted, or one that nobody reads."""
    return _record.get() or Record()


_record: ContextVar[Record | None] = ContextVar("jax_stitch_record", default=None)
