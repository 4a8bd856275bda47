"""Entries of the cache: files that are written whole or not at all and checked at each read.

An entry carries a hash of its name and content. One that is damaged, or that is not this user's own file, counts as
missing and is built anew; so processes need no locks between them, may die at any point, and nothing that another
user wrote is ever run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from jax_stitch.store import eviction
from jax_stitch.store.location import FOLDER_VARIABLE, folder

_MAGIC = b"JSTITCH2"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size
DAMAGED = ".damaged"
"""What the name of a damaged entry, set aside, ends in."""


def key(**parts: object) -> str:
    """A hash (hex) of what determines an entry; the parts must be JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read(kind: str, name: str) -> bytes | None:
    """The content of an entry, or None where there is no sound one. A damaged one is set aside."""
    path = folder() / kind / name
    try:
        with open(path, "rb", opener=_no_link) as file:
            if not _is_private(file.fileno()):
                return None
            sealed = file.read()
            with contextlib.suppress(OSError):  # a read-only file system
                os.utime(file.fileno())  # the least recently used go first
    except OSError:
        return None
    content = sealed[_HEADER:]
    if sealed[:_HEADER] != _seal(name, content):
        with contextlib.suppress(OSError):
            os.replace(path, path.with_name(name + DAMAGED))
        return None
    return content


def write(kind: str, name: str, content: bytes) -> None:
    """Stores an entry; where that cannot be done, warns once, and each process makes its own."""
    root = folder()
    try:
        path = root / kind / name
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _write_whole(path, _seal(name, content) + content)
    except OSError as error:
        _warn(root, error.strerror or str(error))
    else:
        eviction.written(root, _HEADER + len(content))


def read_or_build(kind: str, name: str, build: Callable[[], bytes]) -> bytes:
    """The content of an entry, built and stored first where missing."""
    content = read(kind, name)
    if content is None:
        content = build()
        write(kind, name, content)
    return content


def _seal(name: str, content: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(name.encode() + b"\0" + content).digest()


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _is_private(descriptor: int) -> bool:
    """Whether an open file is this user's and can be written by nobody else."""
    status = os.fstat(descriptor)
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _write_whole(path: Path, data: bytes) -> None:
    """Replaces a file: whoever reads it, even after a crash, sees the old content or the new, never a part."""
    descriptor, temporary = tempfile.mkstemp(prefix=eviction.TEMPORARY, dir=path.parent)  # for its owner only
    try:
        with os.fdopen(descriptor, "wb") as file:
            if not _is_private(descriptor):
                raise PermissionError("files made there are not private")
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _warn(root: Path, reason: str) -> None:
    if root in _warned:
        return
    _warned.add(root)
    warnings.warn(
        f"JAX Stitch cannot write to its cache folder {root} ({reason}): what is not there yet is compiled anew by "
        f"each process. Point {FOLDER_VARIABLE} to a private folder with room.",
        stacklevel=3,
    )


_warned: set[Path] = set()
