"""Entries of the cache: files that are written whole or not at all and checked at each read.

An entry carries a hash of its name and content. One that is damaged, or that is not this user's own file in a folder
that is this user's alone, counts as missing and is built again; so processes need no locks between them, may die at any
point, and nothing that another user wrote is ever run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Callable
from pathlib import Path

from jax_stitch.util.store import eviction, private
from jax_stitch.util.store.location import FOLDER_VARIABLE, folder

_MAGIC = b"JSTITCH2"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size
DAMAGED = ".damaged"
"""What the name of a damaged entry, set aside, ends in."""


def key(**parts: object) -> str:
    """Return a hash (hex) of what determines an entry; the parts must be JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read(kind: str, name: str) -> bytes | None:
    """Return the content of an entry, or None where there is no sound one. A damaged one is set aside."""
    root = folder()
    try:
        with private.opened(root, kind) as place:
            sealed = _sealed(place, name)
            if sealed is None:
                return None
            content = sealed[_HEADER:]
            if sealed[:_HEADER] == _seal(name, content):
                return content
            with contextlib.suppress(OSError):
                os.replace(name, name + DAMAGED, src_dir_fd=place, dst_dir_fd=place)
    except private.NotPrivate as refusal:
        _warn(root, str(refusal))
    except OSError:
        return None
    return None


def write(kind: str, name: str, content: bytes) -> None:
    """Store an entry; where that cannot be done, warns once, and each process makes its own."""
    root = folder()
    try:
        with private.opened(root, kind, make=True) as place:
            _write_whole(place, name, _seal(name, content) + content)
    except OSError as error:
        _warn(root, error.strerror or str(error))
    else:
        eviction.written(root, _HEADER + len(content))


def set_aside(kind: str, name: str) -> None:
    """Rename an entry that is whole and of no use all the same, so that it counts as missing."""
    with contextlib.suppress(OSError), private.opened(folder(), kind) as place:
        os.replace(name, name + DAMAGED, src_dir_fd=place, dst_dir_fd=place)


def remove(kind: str, name: str) -> None:
    """Delete an entry, if there is one."""
    with contextlib.suppress(OSError), private.opened(folder(), kind) as place:
        os.unlink(name, dir_fd=place)


def read_or_build(kind: str, name: str, build: Callable[[], bytes]) -> bytes:
    """Return the content of an entry, built and stored first where missing."""
    content = read(kind, name)
    if content is None:
        content = build()
        write(kind, name, content)
    return content


def _seal(name: str, content: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(name.encode() + b"\0" + content).digest()


def _sealed(place: int, name: str) -> bytes | None:
    """Return all of an entry's file; None where it is not this user's, or no file at all."""
    with private.open_file(name, place) as descriptor:
        if not private.is_own_file(descriptor):  # A folder, say, of which no file can be made.
            return None
        with contextlib.suppress(OSError):  # a read-only file system
            os.utime(descriptor)  # the least recently used go first
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()


def _write_whole(place: int, name: str, data: bytes) -> None:
    """Replace a file: whoever reads it, even after a crash, sees the old content or the new, never a part."""
    temporary = f"{eviction.TEMPORARY}{secrets.token_hex(8)}"
    with private.open_file(temporary, place, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        try:
            if not private.is_own_file(descriptor):
                raise private.NotPrivate(errno.EPERM, "files made there are not private")
            with contextlib.suppress(OSError):  # no locks there: after an hour it is taken for a dead process's
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(data)
            os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=place)
            raise


def _warn(root: Path, reason: str) -> None:
    if root in _warned:
        return
    _warned.add(root)
    warnings.warn(
        f"JAX Stitch cannot use its cache folder {root} ({reason}): what is not there yet is compiled again by each "
        f"process. Point {FOLDER_VARIABLE} to a folder with room that nobody else can write to.",
        stacklevel=3,
    )


_warned: set[Path] = set()
