"""One fault at one call: what this package asks of the system fails, stalls or answers wrongly at the n-th time."""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

PACKAGE = str(Path(__file__).resolve().parents[2] / "jax_stitch")
_OWN = (__file__, str(Path(__file__).parent))
_LIBRARY = sysconfig.get_path("stdlib")

CALLS = ("open", "read", "write", "rename", "unlink", "mkdir", "mmap", "dlopen", "fork", "exec", "clock", "child")
ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EACCES, errno.EROFS, errno.ENOENT, errno.ESTALE)
WAYS: dict[str, tuple[str, ...]] = {
    "read": ("fails", "stalls", "is cut short"),
    "write": ("fails", "stalls", "is cut short"),
    "exec": ("fails", "stalls", "is killed", "writes nothing", "writes garbage", "says no"),
    "child": ("is killed", "hangs"),
    "clock": ("leaps ahead", "leaps back", "stalls"),
}
"""How a call can go wrong; "fails" and "stalls" where there is nothing else."""


@dataclass
class Fault:
    """The ``n``-th call (from 0) of a kind goes wrong in one way."""

    call: str
    way: str
    n: int
    error: int
    seen: int = 0
    struck: bool = False

    def __str__(self) -> str:
        code = f" with {errno.errorcode[self.error]}" if self.way == "fails" else ""
        return f"{self.call} number {self.n} {self.way}{code}"

    @property
    def hurry(self) -> dict[str, str]:
        """Compilers that hang are given up soon; others need not as long."""
        return {"JAX_STITCH_COMPILE_TIMEOUT": "3"} if (self.call, self.way) == ("exec", "stalls") else {}

    def strikes(self, call: str) -> bool:
        """Whether this very call, of our package's own, goes wrong."""
        if call != self.call or self.struck or not _is_ours():
            return False
        self.seen += 1
        self.struck = self.seen > self.n
        return self.struck

    def fail(self) -> None:
        if self.way == "stalls":
            time_sleep(0.2)
        elif self.way == "fails":
            raise OSError(self.error, os.strerror(self.error))


time_sleep = time.sleep


def _is_ours() -> bool:
    """Whether a call comes from this package, or from a module of Python's library for it."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if frame.f_code.co_name == "_get_default_tempdir":  # Python tries folders, and leaves what it cannot remove.
            return False
        if name.startswith(PACKAGE):
            return True
        if not (name in _OWN or name.startswith((_OWN[1], "<frozen")) or _is_library(name)):
            return False
        frame = frame.f_back
    return False


def _is_library(name: str) -> bool:
    return name.startswith(_LIBRARY) and "site-packages" not in name


class _File:
    """An open file whose reads and writes can go wrong."""

    def __init__(self, file: Any, fault: Fault) -> None:
        self._file, self._fault = file, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        self._file.__enter__()
        return self

    def __exit__(self, *failure: Any) -> Any:
        return self._file.__exit__(*failure)

    def __iter__(self) -> Any:
        return iter(self._file)

    def read(self, *size: int) -> Any:
        struck = self._fault.strikes("read")
        if struck:
            self._fault.fail()
        data = self._file.read(*size)
        return data[: len(data) // 2] if struck and self._fault.way == "is cut short" else data

    def write(self, data: Any) -> Any:
        if self._fault.strikes("write"):
            self._fault.fail()
            if self._fault.way == "is cut short":  # as where a disk fills
                self._file.write(data[: len(data) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(data)


_COMPILERS = {
    "stalls": "sleep 1000",
    "is killed": "kill -KILL $$",
    "writes nothing": "exit 0",
    "writes garbage": 'while [ "$1" != -o ]; do shift || exit 0; done; echo garbage > "$2"',
    "says no": "echo 'internal trouble' >&2; exit 4",
}


@contextmanager
def injected(fault: Fault) -> Iterator[Fault]:
    """While it lasts, the calls of this package are counted, and one goes wrong."""
    patches = [
        *(_failing(module, name, "open", fault, wrap=wrap) for module, name, wrap in _OPENERS),
        *(_failing(os, name, "rename", fault) for name in ("replace", "rename")),
        _failing(os, "unlink", "unlink", fault),
        _failing(os, "mkdir", "mkdir", fault),
        _failing(os, "memfd_create", "mmap", fault),
        _failing(ctypes, "CDLL", "dlopen", fault),
        mock.patch.object(subprocess, "Popen", _popen(fault)),
        *(_clock(name, fault) for name in ("time", "monotonic", "perf_counter")),
    ]
    with mock.patch.dict(os.environ, fault.hurry):
        for patch in patches:
            patch.start()
        try:
            yield fault
        finally:
            for patch in reversed(patches):
                patch.stop()


_OPENERS: tuple[tuple[Any, str, bool], ...] = (
    (os, "open", False),
    (os, "fdopen", True),
    (io, "open", True),
    (builtins, "open", True),
)


def _failing(module: Any, name: str, call: str, fault: Fault, wrap: bool = False) -> Any:
    real = getattr(module, name)

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if not (module is os and name == "fdopen") and fault.strikes(call):
            fault.fail()
        found = real(*args, **kwargs)
        return _File(found, fault) if wrap and fault.call in ("read", "write") and _is_ours() else found

    return mock.patch.object(module, name, stand_in)


def _popen(fault: Fault) -> type[subprocess.Popen[Any]]:
    class Popen(subprocess.Popen[Any]):
        def __init__(self, args: Any, **kwargs: Any) -> None:
            if fault.strikes("fork"):
                fault.fail()
            if fault.strikes("exec"):
                if fault.way == "fails":
                    fault.fail()
                # A compiler runs under a shell of ours, a child process of Python does not.
                script, rest = (args[:4], args[4:]) if args[0] == "/bin/sh" else ([], args)
                args = [*script, "/bin/sh", "-c", _COMPILERS[fault.way], *rest]
            super().__init__(args, **kwargs)

    return Popen


def _clock(name: str, fault: Fault) -> Any:
    real, shift = getattr(time, name), 0.0

    def stand_in() -> float:
        nonlocal shift
        if fault.strikes("clock"):
            if fault.way == "stalls":
                time_sleep(0.2)
            else:
                shift = 1e6 if fault.way == "leaps ahead" else -1e6
        return real() + (shift if shift and _is_ours() else 0.0)

    return mock.patch.object(time, name, stand_in)
