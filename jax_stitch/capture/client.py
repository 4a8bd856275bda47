"""This process's side of the compiler process: starts it when first needed, talks to it, replaces it when it dies."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pkgutil
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

from jax_stitch.capture.errors import CaptureError, CudaPluginMissing
from jax_stitch.capture.frames import decode, encode

Option = str | bool | int | float
"""Value of an XLA option."""

_TIMEOUT = 600.0
_LOG_TAIL = 2000
"""Characters of the dead process's last words to show."""


def compile_described(
    program: bytes, target_config: str, options: Mapping[str, Option], timeout: float = _TIMEOUT
) -> str:
    """Optimized HLO text of a StableHLO module (MLIR bytecode) for a GPU that is described, in the compiler process.

    Raises ``CudaPluginMissing``, or ``CaptureError`` with XLA's words; also where the process died or took more than
    ``timeout`` seconds, in which case the next call starts another.
    """
    if not cuda_plugin_installed():
        raise CudaPluginMissing
    request = encode({"target_config": target_config, "options": list(options.items())}, program)
    with _lock:
        header, payload = _running().ask(request, timeout)
    text = payload.decode()
    if not header["ok"]:
        raise CaptureError(f"XLA's GPU compiler failed: {text}")
    return text


def cuda_plugin_installed() -> bool:
    """Whether a PJRT plugin of JAX for CUDA (12 or 13) can be imported."""
    plugins = importlib.util.find_spec("jax_plugins")
    if plugins is None or plugins.submodule_search_locations is None:
        return False
    return any(m.name.startswith("xla_cuda") for m in pkgutil.iter_modules(plugins.submodule_search_locations))


class CompilerProcess:
    """One compiler process and the pipes to it. Not for several threads at once."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        environment = os.environ | {
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "JAX_PLATFORMS": "cpu",
            # The process must find this very package, be it installed or a checkout somewhere on the path.
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jax_stitch.capture.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            bufsize=0,
            start_new_session=True,  # An interrupt at the terminal is for the parent to handle.
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def ask(self, request: bytes, timeout: float) -> tuple[dict[str, Any], bytes]:
        """Sends a request and waits for its reply. After any failure the process is gone."""
        try:
            return self._exchange(request, time.monotonic() + timeout)
        except TimeoutError:
            self.close()
            raise CaptureError(f"XLA's GPU compiler was stopped after {timeout:g} s without an answer") from None
        except (EOFError, BrokenPipeError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
            status, last_words = self._process.poll(), self._last_words()
            self.close()
            raise CaptureError(f"XLA's GPU compiler died (exit status {status}):\n{last_words}") from None
        except BaseException:  # An interrupt: the reply would be taken for the next request's.
            self.close()
            raise

    def close(self) -> None:
        """Ends the process. It holds nothing worth an orderly end."""
        self._process.kill()
        self._process.wait()
        self.abandon()

    def abandon(self) -> None:
        """Closes this side's pipes and leaves the process alone: after a fork, it is the parent's."""
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _exchange(self, request: bytes, deadline: float) -> tuple[dict[str, Any], bytes]:
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

        return decode(read)

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        fatal = [line for line in lines if line.startswith("F") and "Check failed" in line]
        return "\n".join(fatal) or "\n".join(lines)[-_LOG_TAIL:]


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


_lock = threading.Lock()
_current: CompilerProcess | None = None


def _running() -> CompilerProcess:
    """The compiler process, started if there is none. Call with the lock held."""
    global _current
    if _current is None or not _current.alive:
        if _current is not None:
            _current.close()
        _current = CompilerProcess()
    return _current


def shut_down() -> None:
    """Ends the compiler process, if there is one; a later compilation starts another."""
    global _current
    with _lock:
        if _current is not None:
            _current.close()
            _current = None


def _after_fork() -> None:
    """A forked child shares the parent's pipes and perhaps a lock that nobody will release: it starts over."""
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.abandon()
        _current = None


atexit.register(shut_down)
os.register_at_fork(after_in_child=_after_fork)
