"""How large the cache may grow, and what goes when it is larger: the entries that were read least recently."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from jax_stitch.util.store import private
from jax_stitch.util.store.location import KINDS

LIMIT_VARIABLE = "JAX_STITCH_CACHE_MAX_SIZE"
DEFAULT = 2 << 30
"""Bytes."""
TEMPORARY = ".writing-"
"""What the names of files that are being written begin with."""

_KEPT = 0.9
"""Part of the limit that is left after entries have gone, so that not every write removes some."""
_ABANDONED = 3600.0
"""Seconds after which a file that is still being written is a dead process's, whatever its lock says."""
_YOUNG = 10.0
"""Seconds that a file may have no lock yet."""
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def limit() -> int:
    """Return the most bytes that the cache may hold: ``$JAX_STITCH_CACHE_MAX_SIZE``, as in ``500MiB``, ``2G`` or
    ``1000000`` (K, M, G and T are powers of 1024), else ``DEFAULT``.
    """
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return DEFAULT
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.lower())
    if match is None:
        warnings.warn(
            f"{LIMIT_VARIABLE} is {text!r}, which is no size: write bytes, or a number with K, M, G or T, as in 500M. "
            f"The limit is {DEFAULT >> 30} GiB until then.",
            stacklevel=2,
        )
        return DEFAULT
    return int(float(match[1]) * (1 << _UNITS[match[2]]))


def written(root: Path, size: int) -> None:
    """Hear of each entry written: keep the folder within the limit, and look into it now and then only."""
    allowed = limit()
    with _lock:
        since = _since_look.get(root)
        due = since is None or since + size > allowed // 64
        _since_look[root] = 0 if since is None or due else since + size
    if due:
        shrink(root, allowed)


def shrink(root: Path, allowed: int) -> None:
    """Remove what dead processes left half-written, and the least recently read entries beyond ``allowed`` bytes.

    Several processes may do so at once: a reader holds what it reads, and what is gone is built again.
    """
    entries = []
    now = time.time()
    for path, status in files(root):
        if not path.name.startswith(TEMPORARY):
            entries.append((status.st_mtime_ns, status.st_size, path))
        elif _is_abandoned(path, now - status.st_mtime):
            remove(path)
    total = sum(size for _, size, _ in entries)
    if total <= allowed:
        return
    for _, size, path in sorted(entries):
        remove(path)
        total -= size
        if total <= _KEPT * allowed:
            return


def files(root: Path, kinds: Sequence[str] = KINDS) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files of the cache, which others may remove meanwhile."""
    for kind in kinds:
        listed = []
        # A folder that others can write to may be a link to one of the user's own.
        with contextlib.suppress(OSError), private.opened(root, kind) as place, os.scandir(place) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        listed.append((root / kind / entry.name, status))
        yield from listed


def remove(path: Path) -> None:
    """Remove a file of the cache, if it is still there and nobody else can write to its folder."""
    with contextlib.suppress(OSError), private.opened(path.parents[1], path.parent.name) as place:
        os.unlink(path.name, dir_fd=place)


def _is_abandoned(path: Path, age: float) -> bool:
    """Return whether the process that wrote a file is gone: its lock is, or it has had more time than any takes."""
    if abs(age) > _ABANDONED:
        return True
    if age < _YOUNG:
        return False
    with (
        contextlib.suppress(OSError),
        private.opened(path.parents[1], path.parent.name) as place,
        private.open_file(path.name, place) as descriptor,
    ):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


_lock = threading.Lock()
_since_look: dict[Path, int] = {}
"""Bytes written since the folder was last looked through."""
