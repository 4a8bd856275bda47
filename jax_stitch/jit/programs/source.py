"""Hashes of this package's own files: in a checkout they change without a new version."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator

from jax_stitch.util.place import PACKAGE

_ROOT = str(PACKAGE.parent)
_PACKAGES = ("hlo_parser", "jax_stitch")
_BEFORE_ALL = 1_700_000_000 * 10**9
"""A time before any release, in nanoseconds since 1970: a file of an earlier time did not get it by being changed."""
_SOURCES = (".py", ".h", ".cc", ".json", ".toml", ".txtpb")


@functools.cache
def source() -> str:
    """Return a hash of their contents: the same wherever they are installed."""
    digest = hashlib.sha256()
    for path in sorted(entry.path for entry in _files()):
        content = _content(path)
        digest.update(f"{path[len(_ROOT) + 1 :]}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@functools.cache
def stamp() -> str:
    """Return a hash of their sizes and times, without reading them: for what each process asks for before its first
    result.

    Files that an installer has given a time from before there was this package are read: all releases have that time.
    """
    listed = []
    for entry in _files():
        status = entry.stat()
        told = str(status.st_mtime_ns)
        if status.st_mtime_ns < _BEFORE_ALL:
            told = hashlib.sha256(_content(entry.path)).hexdigest()
        listed.append(f"{entry.path[len(_ROOT) + 1 :]} {status.st_size} {told}")
    return hashlib.sha256("\n".join(sorted(listed)).encode()).hexdigest()


def _files() -> Iterator[os.DirEntry[str]]:
    for package in _PACKAGES:
        yield from _below(os.path.join(_ROOT, package))


def _below(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SOURCES):
                yield entry
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _below(entry.path)


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))
    finally:
        os.close(descriptor)
