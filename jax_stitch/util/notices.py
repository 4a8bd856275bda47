"""Lines on the standard error about work that takes long, so that nobody wonders what the processor is at.

One after some seconds, which on a terminal is kept up to date, and one when it is known what the work came to. Quick
work is not spoken of. ``JAX_STITCH_LOG=off`` leaves out all of that.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from dataclasses import dataclass, field

from jax_stitch.util.log_output import wanted

PATIENCE = 3.0
"""Seconds of work before it is spoken of."""

_STEP = 0.5
"""Seconds between two looks at what is being done."""
_CLEAR = "\r\x1b[K"
_UNUSABLE = (OSError, ValueError, AttributeError)
"""What a standard error raises that is closed, or not there."""


@dataclass(slots=True, eq=False)
class Work:
    """Something that goes on, and how far it is."""

    name: str
    meanwhile: str
    """What it means for calls: the end of a line."""
    doing: str = "planning"
    began: float = field(default_factory=time.monotonic)
    shown: bool = False
    ended: bool = False

    def count(self, done: int, total: int) -> None:
        """Count so many of its kernels as compiled."""
        self.doing = f"{done} of {total} kernels compiled"

    @property
    def line(self) -> str:
        """Return what to say of it now."""
        return f"stitching {self.name}: {self.doing}; {self.meanwhile}"


def begin(work: Work) -> None:
    """Begin work that is spoken of once it takes long."""
    global _thread
    if wanted() == "off":
        return
    with _lock:
        _going_on.append(work)
        if _thread is not None or _stopping:
            return
        _thread = threading.Thread(target=_watch, name="jax-stitch-notices", daemon=True)
        thread = _thread
    with contextlib.suppress(RuntimeError):  # No thread can be started any more: the process ends.
        thread.start()


def end(work: Work) -> None:
    """End the work: it is done, or given up."""
    with _lock:
        work.ended = True
        if work in _going_on:
            _going_on.remove(work)
        if not _going_on and work.shown and _on_terminal():
            _write(_CLEAR)


def tell_result(work: Work, result: str) -> None:
    """Say what work came to that was spoken of."""
    with _lock:
        if work.shown and not _stopping:
            _write(f"{_CLEAR if _on_terminal() else ''}{work.name}: {result}\n")


def stop() -> None:
    """Write nothing from now on: the process ends."""
    global _stopping
    with _lock:
        _stopping = True
        _going_on.clear()


def _watch() -> None:
    global _thread
    while True:
        time.sleep(_STEP)
        with _lock:
            if not _going_on:
                _thread = None
                return
            _show([work for work in _going_on if time.monotonic() - work.began > PATIENCE])


def _show(long: list[Work]) -> None:
    if not long:
        return
    if not _on_terminal():
        for work in long:
            if not work.shown:
                _write(f"{work.line}\n")
    else:
        others = f" (and {len(long) - 1} more)" if len(long) > 1 else ""
        _write(f"{_CLEAR}{long[0].line}{others}")
    for work in long:
        work.shown = True


def _on_terminal() -> bool:
    with contextlib.suppress(*_UNUSABLE):
        return sys.stderr.isatty()
    return False


def _write(text: str) -> None:
    with contextlib.suppress(*_UNUSABLE):
        sys.stderr.write(text)
        sys.stderr.flush()


def _after_fork() -> None:
    global _lock, _thread
    _lock, _thread = threading.Lock(), None
    _going_on.clear()


_lock = threading.Lock()
_going_on: list[Work] = []
_thread: threading.Thread | None = None
_stopping = False

os.register_at_fork(after_in_child=_after_fork)
