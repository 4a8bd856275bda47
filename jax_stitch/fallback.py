"""When a function runs as plain ``jax.jit`` after all: which failures allow that, and the warning that says so."""

from __future__ import annotations

import errno
import os
import threading
import traceback
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from jax_stitch.capture.errors import CaptureError, Unstitchable
from jax_stitch.compile import CompilerMissing, CompilerTrouble, KernelCompileError, NvrtcMissing

if TYPE_CHECKING:
    from jax_stitch.operation import Origin

DEBUG_VARIABLE = "JAX_STITCH_DEBUG"
"""Set to 1, a failure of JAX Stitch itself is raised instead of warned about."""

_NOWHERE_TO_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)

_MACHINE_IS_FULL = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOLCK, errno.ENOBUFS)

_PACKAGE = Path(__file__).parent


class StitchWarning(UserWarning):
    """A function runs as plain ``jax.jit``."""


def reason_of(failure: Exception) -> str:
    """Why a function could not be stitched. A failure that is a defect is raised if ``JAX_STITCH_DEBUG`` is 1."""
    if isinstance(failure, (Unstitchable, CompilerMissing, CompilerTrouble, NvrtcMissing, CaptureError)):
        return str(failure)
    if isinstance(failure, OSError) and failure.errno in _NOWHERE_TO_WRITE:
        return f"{failure}. Its kernels are compiled among the temporary files: make room there, or set TMPDIR."
    if isinstance(failure, OSError) and failure.errno in _MACHINE_IS_FULL:
        return f"{failure}. This machine, or this process's share of it, has no room for more: close others."
    if os.environ.get(DEBUG_VARIABLE) == "1":
        raise failure
    if isinstance(failure, KernelCompileError):
        return f"{failure}\nIf this compiler is broken, name another in $CXX. If it is not, please report this."
    return (
        f"JAX Stitch failed{_place(failure)} with {type(failure).__name__}: {failure}\n"
        f"Please report this, with what {DEBUG_VARIABLE}=1 shows."
    )


def warn(origin: Origin, reason: str) -> None:
    """Says, once for each function and at the place of its definition, that it runs unstitched."""
    held = _held.get()
    if held is not None:
        held.append((origin, reason))
        return
    with _lock:
        if origin in _warned:
            return
        _warned.add(origin)
    message = f"{origin.name} runs as plain jax.jit: {reason}"
    warnings.warn_explicit(message, StitchWarning, origin.file, origin.line)


@contextmanager
def warnings_held() -> Iterator[list[tuple[Origin, str]]]:
    """Keeps back what ``warn`` is called with on this thread, for later or never."""
    held: list[tuple[Origin, str]] = []
    token = _held.set(held)
    try:
        yield held
    finally:
        _held.reset(token)


def _place(failure: Exception) -> str:
    """The innermost of our own lines that a failure passed through."""
    ours = [f for f in traceback.extract_tb(failure.__traceback__) if Path(f.filename).is_relative_to(_PACKAGE)]
    return f" at {Path(ours[-1].filename).relative_to(_PACKAGE)}:{ours[-1].lineno}" if ours else ""


_held: ContextVar[list[tuple[Origin, str]] | None] = ContextVar("jax_stitch_held", default=None)
_lock = threading.Lock()
_warned: weakref.WeakSet[Origin] = weakref.WeakSet()
