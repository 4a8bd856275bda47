"""The text of the files that a program says it was written in.

A program may come from anywhere (``jax.export``, a dump of HLO) and say what it likes: a file of secrets, whose lines a
page of the plan would show to whoever the user sends it to; a pipe, which would never end. So only files are read that
this process has loaded code from, or Python files below the working folder, as of a project whose dump is looked at.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import stat
import sys
from pathlib import Path

_LARGEST = 8 << 20
"""Bytes of a file that somebody may have written by hand."""


def source_text(file: str) -> str | None:
    """Return the text of a file of Python source; None for what is none, or is nobody's business."""
    if file in linecache.cache:  # A notebook's cell, or what a traceback has shown: as that was.
        return "".join(linecache.getlines(file))
    if not (_is_loaded(file) or _is_below_working_folder(file)):
        return None
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST:
                return opened.read().decode("utf-8", "replace")
    return None


def _is_loaded(file: str) -> bool:
    return any(getattr(module, "__file__", None) == file for module in list(sys.modules.values()))


def _is_below_working_folder(file: str) -> bool:
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        path = Path(file).resolve()
        return path.suffix == ".py" and path.is_relative_to(Path.cwd().resolve())
    return False
