"""Loading a shared object that is in memory: what was verified is what runs, whatever becomes of any file."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jax_stitch.backend.compile import build_folder

_OPEN_FILES = "/proc/self/fd"


def load(content: bytes) -> ctypes.CDLL:
    """Return a shared object from its bytes, by way of a file that has no name.

    Raises ``OSError`` where it is none for this machine, or nothing here may be executed.
    """
    failures = []
    for place in _places():
        try:
            with place as (path, descriptor):
                with open(descriptor, "wb", closefd=False) as file:
                    file.write(content)
                return ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
    raise OSError("; ".join(dict.fromkeys(failures)) or "there is no folder for it")


Place = contextlib.AbstractContextManager[tuple[str, int]]
"""A path to load from, and the open file behind it."""


def _places() -> Iterator[Place]:
    if hasattr(os, "memfd_create"):
        yield _in_memory()
    for parent in build_folder.parents():
        yield _nameless(parent) if os.path.exists(_OPEN_FILES) else _named(parent)


@contextmanager
def _in_memory() -> Iterator[tuple[str, int]]:
    descriptor = os.memfd_create("jax-stitch", os.MFD_CLOEXEC)
    try:
        yield _path(descriptor), descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _nameless(parent: Path) -> Iterator[tuple[str, int]]:
    descriptor, name = tempfile.mkstemp(prefix="jax-stitch-", dir=parent)
    try:
        os.unlink(name)
        yield _path(descriptor), descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _named(parent: Path) -> Iterator[tuple[str, int]]:
    """Name an open file where open files have no path. Nobody else can rename what is in ``parent``."""
    with tempfile.TemporaryDirectory(prefix="jax-stitch-", dir=parent) as folder:
        path = Path(folder) / "kernel.so"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            yield str(path), descriptor
        finally:
            os.close(descriptor)


def _path(descriptor: int) -> str:
    """Return a path to an open file, written as none was before: the loader takes a library of a name that it has seen
    for the one that it has, and numbers of files are used again."""
    number = next(_count)
    bits = (number >> k & 1 for k in range(max(number.bit_length(), 1)))
    return f"{_OPEN_FILES}{''.join('/.' if bit else '/' for bit in bits)}/{descriptor}"


_count = itertools.count(1)
