"""Folders and files that nobody but this user can change: what comes from elsewhere is not run.

Files are reached through open folders, each checked once it is open: what another user renames or links meanwhile is
another folder, and not the one that is open.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OTHERS = 0o022
"""Permission of others to write."""


class NotPrivate(PermissionError):
    """A folder or file is another user's, or others can write to it."""


@contextmanager
def opened(root: Path, kind: str, *, make: bool = False) -> Iterator[int]:
    """Open the folder ``kind`` in ``root``, if nobody else can write to either; with ``make``, make it if missing.

    Raises ``OSError``, of which ``NotPrivate``.
    """
    if make:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _descriptor(str(root), os.O_DIRECTORY) as outer:
        check(os.fstat(outer), root)
        refused = _made(kind, outer) if make else None
        try:
            with _descriptor(kind, os.O_DIRECTORY | os.O_NOFOLLOW, outer) as inner:
                check(os.fstat(inner), root / kind)
                yield inner
        except FileNotFoundError:
            raise (refused or FileNotFoundError(f"{root / kind} is gone")) from None


def check(status: os.stat_result, path: Path) -> None:
    """Raise ``NotPrivate`` for what is not this user's, or can be written by others."""
    if status.st_uid != os.geteuid():
        raise NotPrivate(f"{path} belongs to another user")
    if status.st_mode & _OTHERS:
        raise NotPrivate(f"other users can write to {path}")


def is_own_file(descriptor: int) -> bool:
    """Return whether an open file is a regular one of this user, that nobody else can write to."""
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS


def can_hold_secrets(parent: Path) -> bool:
    """Return whether a private folder made in ``parent`` stays the one that was made: nobody else can rename it."""
    try:
        status = parent.stat()
    except OSError:
        return False
    if status.st_uid not in (0, os.geteuid()):
        return False
    return not status.st_mode & _OTHERS or bool(status.st_mode & stat.S_ISVTX)


@contextmanager
def open_file(name: str, folder: int, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open a file in an open folder, as its descriptor: no link is followed, and no pipe waited for."""
    with _descriptor(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, folder) as descriptor:
        yield descriptor


def _made(name: str, folder: int) -> OSError | None:
    """Make a folder; returns why it cannot, which matters only if it is not there."""
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except OSError as error:
        return error
    return None


@contextmanager
def _descriptor(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, os.O_CLOEXEC | flags, 0o600, dir_fd=folder)
    try:
        yield descriptor
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
