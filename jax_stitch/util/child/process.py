"""A child process on both sides of its pipes: started when first needed, asked, replaced when it dies."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from jax_stitch.util import tools
from jax_stitch.util.child.messages import decode, encode
from jax_stitch.util.collecting import BETWEEN
from jax_stitch.util.place import PACKAGE

_LOG_TAIL = 2000
"""Characters of the dead process's last words to show."""

_START = Path(__file__).with_name("start.py")

_ON_ITS_WAY = "on its way"
"""In the header of a message that is not yet the reply."""

Message = tuple[dict[str, Any], bytes]
Told = Callable[[dict[str, Any]], None]


class ChildFailed(RuntimeError):
    """A child process gave no answer; the message says why, as the end of a sentence."""


class ChildDied(ChildFailed):
    """It ended before it had answered."""


class Child:
    """One child process, a module of ours that calls ``serve``, and the pipes to it. Not for several threads at once.

    It works for all its life at a lower priority by ``niceness``, where the system has ``nice``. Raises ``ChildFailed``
    where it cannot be started.
    """

    def __init__(self, module: str, environment: Mapping[str, str], niceness: int = 0) -> None:
        if getattr(sys, "frozen", False) or not sys.executable:
            raise ChildFailed("cannot be started: this program has no Python interpreter of its own")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        nice = (path, "-n", str(niceness)) if niceness and (path := tools.find("nice")) else ()
        try:
            self._process = subprocess.Popen(
                # Without -P, whatever lies in the working folder would be imported before the libraries.
                [*nice, sys.executable, "-P", str(_START), module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(_search_path())} | dict(environment),
                bufsize=0,
                # An interrupt at the terminal is for the parent to handle. Not a new session: Linux would share the
                # processor out between sessions first, and a low priority would only count inside one.
                process_group=0,
            )
        except OSError as error:
            raise ChildFailed(f"cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether it runs."""
        return self._process.poll() is None

    def ask(self, request: bytes, timeout: float, told: Told | None = None) -> Message:
        """Send a request and waits for its reply. After any failure the process is gone.

        What the process says before it replies goes to ``told``.

        Raises ``ChildDied``, or ``ChildFailed`` where there is no answer after ``timeout`` seconds.
        """
        try:
            return self._exchange(request, time.monotonic() + timeout, told)
        except TimeoutError:
            self.close()
            raise ChildFailed(f"was stopped after {timeout:g} s without an answer") from None
        except (EOFError, BrokenPipeError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
            status, last_words = self._process.poll(), self._last_words()
            self.close()
            raise ChildDied(f"died (exit status {status}):\n{last_words}") from None
        except BaseException:  # An interrupt: the reply would be taken for the next request's.
            self.close()
            raise

    def stop(self, patience: float) -> None:
        """End the process, orderly if it ends within ``patience`` seconds. Whoever asks it meanwhile is told that
        it died.
        """
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """End the process. It holds nothing worth an orderly end."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self.abandon()

    def _signal(self, number: int) -> None:
        """Signal it and what it has started, which holds its pipes: a reply would be waited for as long as that
        runs.
        """
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def abandon(self) -> None:
        """Close this side's pipes and leaves the process alone: after a fork, it is the parent's."""
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _exchange(self, request: bytes, deadline: float, told: Told | None) -> Message:
        assert self._process.stdin is not None and self._process.stdout is not None
        target, source = self._process.stdin.fileno(), self._process.stdout.fileno()
        rest = memoryview(request)
        while rest:
            _wait(target, select.POLLOUT, deadline)
            rest = rest[os.write(target, rest[: select.PIPE_BUF]) :]

        def read(size: int) -> bytes:
            parts: list[bytes] = []
            while size:
                _wait(source, select.POLLIN, deadline)
                part = os.read(source, min(size, 1 << 20))
                if not part:
                    raise EOFError
                parts.append(part)
                size -= len(part)
            return b"".join(parts)

        while True:
            header, payload = decode(read)
            if not header.get(_ON_ITS_WAY):
                return header, payload
            if told is not None:
                told(header)

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        fatal = [line for line in lines if line.startswith("F") and "Check failed" in line]
        return "\n".join(fatal) or "\n".join(lines)[-_LOG_TAIL:]


class Keeper:
    """Starts a child process when it is first asked for something, and keeps it for what comes later."""

    def __init__(self, module: str, environment: Mapping[str, str], niceness: int = 0) -> None:
        self._start = lambda: Child(module, environment, niceness)
        self.lock = threading.Lock()
        self.child: Child | None = None
        """The process, if it has been started."""
        _keepers.add(self)

    def ask(self, request: bytes, timeout: float, told: Told | None = None) -> Message:
        """Return the child's reply; what it says before that goes to ``told``. Threads take turns.

        Raises what ``Child`` and its ``ask`` raise, after which the next call starts another.
        """
        with self.lock:
            if self.child is None or not self.child.alive:
                if self.child is not None:
                    self.child.close()
                self.child = self._start()
            return self.child.ask(request, timeout, told)

    def interrupt(self, patience: float = 0.5) -> None:
        """End the child process, also while another thread waits for its reply."""
        if (child := self.child) is not None and child.alive:
            child.stop(patience)

    def shut_down(self) -> None:
        """End the child process, if there is one; a later request starts another."""
        with self.lock:
            if self.child is not None:
                self.child.close()
                self.child = None

    def after_fork(self) -> None:
        """Start over in a forked process: it shares its parent's pipes, and perhaps a lock that nobody will release."""
        self.lock = threading.Lock()
        if self.child is not None:
            self.child.abandon()
            self.child = None


def serve(answer: Callable[[dict[str, Any], bytes], Message], idle: float | None = None) -> None:
    """Answer requests on a child's standard streams until they end, or none has come for ``idle`` s.

    Whatever else this process prints goes to its standard error. ``answer`` must not raise; it may ``tell_parent``.
    """
    global _tell
    gc.freeze()
    gc.set_threshold(BETWEEN)  # It has one task, and a limit to its memory.
    gc.enable()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: BinaryIO = sys.stdin.buffer

    def say(header: dict[str, Any], payload: bytes = b"") -> None:
        replies.write(encode(header, payload))
        replies.flush()

    def on_its_way(header: dict[str, Any]) -> None:
        say({**header, _ON_ITS_WAY: True})

    _tell = on_its_way

    def read(size: int) -> bytes:
        data = requests.read(size)
        if len(data) < size:
            raise EOFError
        return data

    # The parent waits for each reply, so between two of them nothing can be in the stream's buffer.
    while select.select([requests], [], [], idle)[0]:
        try:
            header, payload = decode(read)
        except EOFError:
            return
        say(*answer(header, payload))


def tell_parent(header: dict[str, Any]) -> None:
    """Say how far the answer is, to the ``told`` of whoever asked; nothing in a process that answers nobody."""
    if _tell is not None:
        _tell(header)


def _search_path() -> list[str]:
    """Return where the child finds modules: where this process does, less what depends on the working folder, and this
    very package, be it installed or a checkout somewhere on the path."""
    path = [folder for folder in sys.path if os.path.isabs(folder) and os.pathsep not in folder]
    package = str(PACKAGE.parent)
    return path if package in path else [*path, package]


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


_tell: Told | None = None
_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _shut_down_all() -> None:
    for keeper in list(_keepers):
        keeper.shut_down()


def _after_fork() -> None:
    for keeper in list(_keepers):
        keeper.after_fork()


atexit.register(_shut_down_all)
os.register_at_fork(after_in_child=_after_fork)
