"""Work that nobody waits for: one thread that gives way to all others, in Python and on the processor.

What it computes in Python is interrupted for whoever waits for the interpreter (``giving_way.py``), and it has a lower
priority than the threads that call functions. The C++ compilers that it starts run one at a time, at the lowest.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from jax_stitch.backend.compile import effort, process
from jax_stitch.jit.rebuilt.giving_way import giving_way, stop
from jax_stitch.util.place import PACKAGE

_PAUSE = 0.05
"""Seconds before a job: whoever submitted it may still wait for the result that came before."""

_NICENESS = 10
"""Of the thread: of two that want one core, it gets a tenth. At the usual one it took the core from calls."""

_LAST_WAIT = 30.0
"""Seconds that the end of the process waits for XLA to finish what it is compiling, which cannot be interrupted."""

_PACKAGE = str(PACKAGE)


class Job(Protocol):
    """Something to do once."""

    def run(self) -> None:
        """Do it. Raises nothing; ``Stopped`` may come at any call and has to pass through."""

    def abandon(self, forked: bool) -> None:
        """Abandon the job: the process ends, or is a fork of the one that does it."""


class Stopped(BaseException):
    """The process ends; raised in the background thread."""


def submit(job: Job) -> None:
    """Do a job after those submitted before, unless nobody else refers to it any more by then."""
    global _thread
    if _stopping:
        job.abandon(forked=False)
        return
    with _lock:
        _queue.append(weakref.ref(job))
        if _thread is not None:
            return
        thread = _thread = threading.Thread(target=_work, name="jax-stitch-background", daemon=True)
    thread.start()


def at_stop(interrupt: Callable[[], None]) -> None:
    """Call ``interrupt`` if the process ends while jobs are left: it ends what their thread may wait for."""
    _interrupts.append(interrupt)


def ending() -> bool:
    """Return whether the process is about to end: what failed then need not be told."""
    if not _stopping:
        # From Python 3.12 on, threads cannot be started a while before anybody is told that this is the end.
        try:
            threading.Thread(target=bool).start()
        except RuntimeError:
            return True
    return _stopping


def _work() -> None:
    effort.low.set(True)
    _stand_back()
    try:
        while (job := _next()) is not None:
            time.sleep(_PAUSE)
            with giving_way(_end_here):
                job.run()
            del job
    except Stopped:
        pass


def _stand_back() -> None:
    """Lower the priority of this thread, where a thread has one of its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


def _end_here(frame: FrameType) -> None:
    """Raise ``Stopped``, but only in our own code, where no lock of JAX or of Python's library can be held halfway."""
    if frame.f_code.co_filename.startswith(_PACKAGE):
        raise Stopped


def _next() -> Job | None:
    global _thread, _running
    with _lock:
        _running = None
        while _queue:
            if (job := _queue.popleft()()) is not None:
                _running = weakref.ref(job)
                return job
        _thread = None
        return None


def _abandon_all(forked: bool) -> None:
    global _thread, _running
    jobs = [reference() for reference in (*_queue, _running) if reference is not None]
    _queue.clear()
    _thread = _running = None
    for job in jobs:
        if job is not None:
            job.abandon(forked)


def _stop() -> None:
    """Leave the thread in no code that must not run while the process is taken down."""
    global _stopping
    _stopping = True
    stop()
    thread = _thread
    _abandon_all(forked=False)
    process.interrupt()
    for interrupt in _interrupts:
        interrupt()
    if thread is not None:
        thread.join(_LAST_WAIT)


def _after_fork() -> None:
    """Forget the thread, which is the parent's, and whatever it was doing."""
    global _lock
    _lock = threading.Lock()
    _abandon_all(forked=True)


_lock = threading.Lock()
_queue: deque[weakref.ref[Job]] = deque()
_running: weakref.ref[Job] | None = None
_thread: threading.Thread | None = None
_interrupts: list[Callable[[], None]] = []
_stopping = False

# ``atexit`` is too late: by then thread pools have refused work, and the failure has been warned about.
threading._register_atexit(_stop)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_after_fork)
