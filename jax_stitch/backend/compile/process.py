"""Running a compiler: with a deadline, and ended with all that it has started, also when this process is killed.

A compiler is a small tree of processes (a driver, the compiler proper, an assembler, a linker). Each run is a process
group of its own. A shell leads it and has the read end of a pipe that this process alone can write to: once that is
gone, however it ended, the shell kills the group.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from jax_stitch.backend.compile import effort
from jax_stitch.backend.compile.errors import CompilerTimeout, CompilerTrouble
from jax_stitch.backend.compile.waiting import Stopwatch
from jax_stitch.util import tools

_T = TypeVar("_T")
_GLANCE = 0.1
"""Seconds between two looks at whether a compilation is given up."""

_LEADER = """exec 3<&0 </dev/null
{ read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &
watch=$!
"$@" 3<&-
status=$?
{ kill -KILL $watch; wait $watch; } >/dev/null 2>&1
exit $status
"""


class Together:
    """Compilations that are given up together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self.given_up = False

    def add(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.add(process)
            if self.given_up:
                _kill(process)

    def remove(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.discard(process)

    def give_up(self) -> None:
        """End what runs, and what will be started."""
        with self._lock:
            self.given_up = True
            for process in self._running:
                _kill(process)


together: ContextVar[Together | None] = ContextVar("jax_stitch_together", default=None)
"""What the compilers that this thread runs belong to."""


def run(command: Sequence[str], folder: Path | None = None, most: float = math.inf) -> subprocess.CompletedProcess[str]:
    """Run a compiler to its end, whatever that is, and returns its output and exit status. ``folder`` is for its
    temporary files, ``most`` the seconds that it has if those of ``effort`` are more.

    Raises ``CompilerTimeout``, and ``CompilerTrouble`` where no process can be started.
    """
    quietly = effort.low.get()
    nice = (program, "-n", effort.NICENESS) if quietly and (program := tools.find("nice")) else ()
    # In English, so that what it says can be recognised.
    environment = os.environ | {"LC_ALL": "C"} | ({} if folder is None else {"TMPDIR": str(folder)})
    allowed = min(effort.seconds(), most)
    with _lifeline() as lifeline:
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _LEADER, "jax-stitch", *nice, *command],
                stdin=lifeline,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                encoding="utf-8",
                errors="backslashreplace",
                process_group=0,
            )
        except OSError as error:
            raise CompilerTrouble(f"The compiler {command[0]} cannot be started: {error}.") from error
    owner = together.get()
    with _known(process, owner, quietly):
        try:
            output, errors = _communicated(process, command[0], allowed)
        except BaseException:
            _end(process)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _communicated(process: subprocess.Popen[str], name: str, allowed: float) -> tuple[str, str]:
    """Return what a compiler prints, once it has ended."""
    watch = Stopwatch(allowed, group=process.pid, low=effort.low.get())
    while True:
        try:
            return process.communicate(timeout=watch.next_look())
        except subprocess.TimeoutExpired:
            if watch.over():
                raise CompilerTimeout(
                    f"The compiler {name} was stopped after {allowed:g} s without coming to an end. If it only needs "
                    f"longer, give it more seconds in {effort.TIMEOUT_VARIABLE}; if it hangs, name another in $CXX."
                ) from None


def within_deadline(what: str, call: Callable[[], _T]) -> _T:
    """Return what a compiler that is a library of this process makes; it cannot be killed, only left alone.

    Raises ``CompilerTimeout``, and what it raises.
    """
    made: Future[_T] = Future()

    def work() -> None:
        try:
            made.set_result(call())
        except BaseException as failure:  # the caller's
            made.set_exception(failure)

    # No thread of a pool: the end of the process would wait for it.
    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(work,), name="jax-stitch-nvrtc", daemon=True
    )  # fmt: skip
    thread.start()
    owner, allowed = together.get(), effort.seconds()
    watch = Stopwatch(allowed, thread=thread.native_id, low=effort.low.get())
    while not made.done() and not watch.over() and not (owner is not None and owner.given_up):
        with contextlib.suppress(TimeoutError):
            made.exception(min(_GLANCE, watch.next_look() or _GLANCE))
    if not made.done():
        raise CompilerTimeout(
            f"{what} came to no end after {allowed:g} s. If it only needs longer, give it more seconds in "
            f"{effort.TIMEOUT_VARIABLE}."
        )
    return made.result()


def interrupt() -> None:
    """End the compilers that nobody waits for, with the processes they have started."""
    for process in tuple(_quiet):
        _kill(process)


@contextmanager
def _known(process: subprocess.Popen[str], owner: Together | None, quietly: bool) -> Iterator[None]:
    if owner is not None:
        owner.add(process)
    if quietly:
        _quiet.add(process)
    try:
        yield
    finally:
        _quiet.discard(process)
        if owner is not None:
            owner.remove(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a compiler and wait for it; not for its output, which what has left its group may still hold."""
    _kill(process)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.returncode is None:  # Its number may be another's by then.
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _lifeline() -> Iterator[int]:
    """Yield the read end of a pipe whose other end is open as long as this process lives."""
    global _held
    with _lock:
        if _held is None:
            _held = os.pipe()
        yield _held[0]


def _after_fork() -> None:
    """Close the parent's pipe: as long as its child had it too, the compilers would outlive the parent."""
    global _held, _lock
    _lock = threading.Lock()
    if _held is not None:
        for descriptor in _held:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        _held = None
    _quiet.clear()


_lock = threading.Lock()
_held: tuple[int, int] | None = None
_quiet: set[subprocess.Popen[str]] = set()
os.register_at_fork(after_in_child=_after_fork)
