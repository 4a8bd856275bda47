"""Folders to compile in: private, gone afterwards, and where their process was killed, removed by a later one.

A folder is locked as long as its process lives, so what is there and not locked is a dead one's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jax_stitch.util import store

PREFIX = "jax-stitch-build-"
_UNLOCKED = "jax-stitch-new-"
"""What a folder's name begins with until it is locked."""
_YOUNG = 60.0
"""Seconds after which such a one is a dead process's."""


@contextmanager
def build_folder() -> Iterator[Path]:
    """Make a new folder that nobody else can write to, among the temporary files or, if others could take its place
    there, in the cache folder. Raise ``OSError``.
    """
    parent = parents()[0]
    _sweep_once(parent)
    path = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=parent))
    descriptor = None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # no locks there
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = path.with_name(PREFIX + path.name.removeprefix(_UNLOCKED))
        os.rename(path, locked)
        path = locked
        yield path
    finally:
        for _ in range(2):  # What failed once may not the next time; else it is left to a later process.
            if path.exists():
                shutil.rmtree(path, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def parents() -> list[Path]:
    """Return where private folders can be made, best first. Raises ``OSError`` where that is nowhere."""
    folders = []
    with contextlib.suppress(FileNotFoundError):  # no temporary folder has room
        if store.can_hold_secrets(temporary := Path(tempfile.gettempdir())):
            folders.append(temporary)
    root = store.folder()
    with contextlib.suppress(OSError):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        store.check(root.stat(), root)
        folders.append(root)
    if not folders:
        raise OSError(
            errno.EACCES, f"no folder to compile in that others cannot write to: neither {_name()} nor {root}"
        )
    return folders


def sweep(parent: Path) -> None:
    """Remove the folders of processes that are gone."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith((PREFIX, _UNLOCKED)):
                with contextlib.suppress(OSError):
                    _remove_if_dead(Path(entry.path))


def _remove_if_dead(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
            return
        if path.name.startswith(_UNLOCKED) and abs(time.time() - status.st_mtime) < _YOUNG:
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def _sweep_once(parent: Path) -> None:
    with _lock:
        if parent in _swept:
            return
        _swept.add(parent)
    sweep(parent)


def _name() -> str:
    return os.environ.get("TMPDIR") or "/tmp"


_lock = threading.Lock()
_swept: set[Path] = set()
