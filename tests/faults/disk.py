"""A small disk that can be filled: a file system in memory, in a name space of mounts of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

MEGABYTES = 48
_FOLDER = "JAX_STITCH_TEST_DISK"
_MOUNT = f'mount -t tmpfs -o size={MEGABYTES}m,mode=700 none "$0" && exec "$@"'


def restarted_with_disk(folder: Path) -> None:
    """Runs this program again where a small disk is mounted on ``folder``; comes back where that cannot be done."""
    if folder_of_disk() is not None or sys.platform != "linux" or shutil.which("unshare") is None:
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    for options in (("--mount",), ("--user", "--map-root-user", "--mount")):
        mounted = ["unshare", *options, "/bin/sh", "-c", _MOUNT, str(folder)]
        if subprocess.run([*mounted, "true"], capture_output=True).returncode == 0:
            os.environ[_FOLDER] = str(folder)
            os.execvp("unshare", [*mounted, sys.executable, *sys.orig_argv[1:]])


def folder_of_disk() -> Path | None:
    """Where the small disk is, if there is one."""
    return Path(found) if (found := os.environ.get(_FOLDER)) else None


def fill(folder: Path) -> None:
    """Takes all the room that is left."""
    with contextlib.suppress(OSError), _filler(folder).open("ab", buffering=0) as file:
        while True:
            try:
                file.write(bytes(1 << 16))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return


def empty(folder: Path) -> None:
    """Gives it back."""
    _filler(folder).unlink(missing_ok=True)


def _filler(folder: Path) -> Path:
    return folder / "filler"
