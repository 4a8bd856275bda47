"""Compiled kernels on disk, found by a hash of everything that went into them.

An entry is written whole or not at all and carries a hash of its own content, checked at each read: a half-written,
damaged or foreign file counts as missing and is built anew. So processes need no locks between them, and may die at
any point.
"""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from jax_stitch.cachedir import cache_dir, write_atomically

_MAGIC = b"JSTITCH1"
_TRAILER = len(_MAGIC) + hashlib.sha256().digest_size


def key(**parts: object) -> str:
    """A hash (hex) of what determines a kernel; the parts must be JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def get(name: str) -> bytes | None:
    """The content of an entry, or None where there is no sound one."""
    return _read(cache_dir("kernels") / name)


def put(name: str, content: bytes) -> Path:
    """Stores an entry and returns its file: the content, then a trailer (which a dynamic loader does not look at)."""
    sealed = content + _MAGIC + hashlib.sha256(content).digest()
    path = cache_dir("kernels") / name
    try:
        write_atomically(path, sealed)
    except OSError:  # the disk is full, say: the process can do without a cache
        path = _spare_folder() / name
        write_atomically(path, sealed)
    return path


def get_or_build(name: str, build: Callable[[], bytes]) -> bytes:
    """The content of an entry, built and stored first where missing."""
    content = get(name)
    if content is None:
        content = build()
        put(name, content)
    return content


def file_or_build(name: str, build: Callable[[], bytes]) -> Path:
    """Like ``get_or_build``, but returns the file that holds the content (and the trailer)."""
    path = cache_dir("kernels") / name
    return path if _read(path) is not None else put(name, build())


def outside(path: Path) -> Path:
    """A copy of an entry's file in a temporary folder, for as long as the process lives."""
    copy = _spare_folder() / path.name
    write_atomically(copy, path.read_bytes())
    return copy


def _read(path: Path) -> bytes | None:
    try:
        sealed = path.read_bytes()
    except OSError:
        return None
    content, trailer = sealed[:-_TRAILER], sealed[-_TRAILER:]
    return content if trailer == _MAGIC + hashlib.sha256(content).digest() else None


@functools.cache
def _spare_folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="jax-stitch-kernels-")
    _spare_folders.append(folder)
    return Path(folder.name)


_spare_folders: list[tempfile.TemporaryDirectory[str]] = []
"""Kept so that they are removed when the process ends, not before."""
