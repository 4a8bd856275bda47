"""The choice whether reports on internal errors are written, and where. ``jax_stitch.jit.debug`` writes them."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax_stitch.frontend.capture import Capture

DEBUG_VARIABLE = "JAX_STITCH_DEBUG"
"""Set to 1, each function on which JAX Stitch fails is written to a folder of its own."""

FOLDER_VARIABLE = "JAX_STITCH_DEBUG_DIR"
"""Where these folders are made; else in the current folder."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a program was stitched: names of devices, planner, templates."""

    device: str = "cpu"
    laid_out_for: str = "cpu"
    planner: str = "beam"
    templates: str = ""


def debugging() -> bool:
    """Return whether reports are wanted."""
    return os.environ.get(DEBUG_VARIABLE) == "1"


def parent() -> Path:
    """Return the folder that reports are written to."""
    return Path(os.environ.get(FOLDER_VARIABLE) or ".")


def report(captured: Capture, failure: Exception, settings: Settings) -> None:
    """Write a report of an internal error, once in a process for a program and an error, and says where."""
    from jax_stitch.jit.debug.report import essence, write_report

    try:
        text = f"{essence(captured.text)}{type(failure).__name__}{failure}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        with _lock:
            if digest in _written:
                return
            _written.add(digest)
        write_report(captured, None, failure, None, settings)
    except Exception as error:  # The failure itself is what the user is to be told of.
        line = traceback.format_exception_only(error)[-1].strip()
        print(f"JAX Stitch could not write a report on {captured.name}: {line}", file=sys.stderr)


_lock = threading.Lock()
_written: set[str] = set()
