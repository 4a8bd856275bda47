"""The library's file: private to the user, made when first needed, renamed where it is damaged."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jax_stitch.util import store

_FORMAT = 1
"""Part of the file's name: another version of the tables is another file."""

_WAIT = 20.0
"""Seconds to wait for another process's transaction, which takes milliseconds."""

_TABLES = """
CREATE TABLE IF NOT EXISTS stations (station TEXT PRIMARY KEY, description TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS times (
  station TEXT NOT NULL, turns TEXT NOT NULL, kernel TEXT NOT NULL,
  seconds REAL NOT NULL, ahead REAL NOT NULL, rounds INTEGER NOT NULL, measured_at INTEGER NOT NULL,
  PRIMARY KEY (station, turns, kernel)
) WITHOUT ROWID;
"""


def path() -> Path:
    """Return where the library lies, made or not."""
    return store.folder() / store.LIBRARY / f"times-{_FORMAT}.sqlite"


def connect() -> sqlite3.Connection:
    """Return the library, made where missing. Raises ``sqlite3.Error`` or ``OSError``; rollbacks need no second file to
    outlive a process, as a write-ahead log would.
    """
    _private_folder()
    file = path()
    with contextlib.suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    store.check(store.folder().stat(), store.folder())
    for place, is_right in ((file.parent, stat.S_ISDIR), (file, stat.S_ISREG)):
        if not is_right(place.lstat().st_mode):  # A link; or a pipe, of which SQLite would wait to hear.
            raise OSError(f"{place} is something else")
        store.check(place.lstat(), place)
    connection = sqlite3.connect(file, timeout=_WAIT, isolation_level=None)
    try:
        if connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()[0] < 2:
            connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def set_aside(reason: sqlite3.DatabaseError) -> bool:
    """Rename a damaged library, with one warning, so that a new one is begun; return False if it is not damaged.

    Several processes may find it damaged at once: the first renames it, the others find a sound one.
    """
    if isinstance(reason, sqlite3.OperationalError) and not _is_damage(reason):
        return False  # Locked, read-only, no room: nothing that a new file would mend.
    with contextlib.suppress(OSError), locked("library", seconds=_WAIT):
        if _is_sound():
            return True
        file = path()
        kept = file.with_name(f"{file.name}-{time.time_ns()}{store.DAMAGED}")
        os.replace(file, kept)
        # What it had not finished belongs to no other.
        file.with_name(file.name + "-journal").unlink(missing_ok=True)
        warnings.warn(
            f"The library of measured times {file} was damaged ({reason}); it is set aside as {kept.name}, and "
            "functions with autotune are measured again.",
            stacklevel=2,
        )
        return True
    return False


@contextmanager
def connected() -> Iterator[sqlite3.Connection]:
    """Connect to the library while nobody sets it aside: what SQLite does with its file by name then is done with this
    one.

    Raises as ``connect`` does.
    """
    with locked("library", seconds=_WAIT, shared=True), contextlib.closing(connect()) as connection:
        yield connection


@contextmanager
def locked(what: str, *, seconds: float, shared: bool = False) -> Iterator[None]:
    """Hold a lock that one process at a time has, or any number where it is shared, waiting at most so long for it; a
    process that ends lets go of it.

    Raises ``OSError`` where there is no file to lock.
    """
    descriptor = os.open(
        _private_folder() / f"{what}.lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        end = time.monotonic() + seconds
        while not _took(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX) and time.monotonic() < end:
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _private_folder() -> Path:
    """Return the library's folder, private as the one that it is in."""
    folder = path().parent
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _took(descriptor: int, lock: int) -> bool:
    try:
        fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def warn_unusable(error: Exception) -> None:
    """Say once for each folder that measured times are not kept there."""
    folder = path().parent
    if folder in _warned:
        return
    _warned.add(folder)
    warnings.warn(
        f"JAX Stitch cannot use its library of measured times in {folder} ({error}): functions with autotune are "
        f"measured by each process. Point {store.FOLDER_VARIABLE} to a private folder with room.",
        stacklevel=2,
    )


def _is_damage(error: sqlite3.OperationalError) -> bool:
    """Return whether an error is of damage. Tables of another making are: they name columns that are not there."""
    return "no such" in str(error) or "malformed" in str(error)


def _is_sound() -> bool:
    try:
        with contextlib.closing(connect()) as connection:
            connection.execute("SELECT station, turns, kernel, seconds, ahead, rounds FROM times LIMIT 1").fetchall()
            connection.execute("SELECT station, description FROM stations LIMIT 1").fetchall()
            return connection.execute("PRAGMA quick_check").fetchone()[0] == "ok"
    except sqlite3.DatabaseError:
        return False


_warned: set[Path] = set()
