"""When a function runs as plain ``jax.jit`` after all: which failures allow that, and the warning that says so.

Under ``strict`` nothing does: what would be a warning is raised.
"""

from __future__ import annotations

import errno
import threading
import traceback
import warnings
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from jax_stitch.backend.compile import CompilerMissing, CompilerTrouble, KernelCompileError, NvrtcMissing
from jax_stitch.frontend.capture.errors import CaptureError, Unstitchable, UnstitchableError
from jax_stitch.util.place import PACKAGE

if TYPE_CHECKING:
    from jax_stitch.jit.primitive import Request

_NOWHERE_TO_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)

_MACHINE_IS_FULL = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOLCK, errno.ENOBUFS)


_HELP = "Please report this, with what JAX_STITCH_DEBUG=1 writes about it; strict=True raises it."


class StitchWarning(UserWarning):
    """A function runs as plain ``jax.jit``."""


def reason_of(failure: Exception, origin: Request) -> str:
    """Return why a function could not be stitched, for ``warn``; raises that if the function is strict."""
    if isinstance(failure, UnstitchableError):
        raise failure
    if isinstance(failure, (Unstitchable, CaptureError)):
        if origin.strict:
            raise UnstitchableError(origin.name, str(failure)) from failure
        return str(failure)
    if origin.strict:
        note = f"{_kind_of(failure)} {origin.name} ({origin.file}:{origin.line}), which is strict."
        if note not in getattr(failure, "__notes__", ()):  # It may pass here again, on a thread in the background.
            failure.add_note(note)
        raise failure
    if isinstance(failure, (CompilerMissing, CompilerTrouble, NvrtcMissing)):
        return str(failure)
    if _has_errno(failure, _NOWHERE_TO_WRITE):
        return f"{failure}. Its kernels are compiled among the temporary files: make room there, or set TMPDIR."
    if _has_errno(failure, _MACHINE_IS_FULL):
        return f"{failure}. This machine, or this process's share of it, has no room for more: close others."
    if isinstance(failure, KernelCompileError):
        unless = "unless this compiler is broken (name another in $CXX)"
        return f"internal error of JAX Stitch, {unless}: {failure}\n{_HELP}"
    return f"internal error of JAX Stitch{place_of(failure)}: {type(failure).__name__}: {failure}\n{_HELP}"


def is_internal(failure: Exception) -> bool:
    """Return whether a failure is a defect of JAX Stitch, and not something that it does not do or that the machine
    lacks.
    """
    unsupported = (Unstitchable, UnstitchableError, CaptureError, StitchWarning)
    missing = (CompilerMissing, CompilerTrouble, NvrtcMissing)
    no_room = _has_errno(failure, (*_NOWHERE_TO_WRITE, *_MACHINE_IS_FULL))
    return not isinstance(failure, (*unsupported, *missing)) and not no_room


def warn(origin: Request, reason: str) -> None:
    """Say, once for each function and at the place of its definition, that it runs unstitched.

    Raises ``UnstitchableError`` instead if the function is strict.
    """
    if origin.strict:
        raise UnstitchableError(origin.name, reason)
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


def _kind_of(failure: Exception) -> str:
    return f"Internal error of JAX Stitch{place_of(failure)} in" if is_internal(failure) else "JAX Stitch cannot stitch"


def _has_errno(failure: Exception, codes: Collection[int]) -> bool:
    return isinstance(failure, OSError) and failure.errno in codes


@contextmanager
def warnings_held() -> Iterator[list[tuple[Request, str]]]:
    """Keep back what ``warn`` is called with on this thread, for later or never."""
    held: list[tuple[Request, str]] = []
    token = _held.set(held)
    try:
        yield held
    finally:
        _held.reset(token)


def place_of(failure: Exception) -> str:
    """Return the innermost of our own lines that a failure passed through."""
    ours = [f for f in traceback.extract_tb(failure.__traceback__) if Path(f.filename).is_relative_to(PACKAGE)]
    return f" at {Path(ours[-1].filename).relative_to(PACKAGE)}:{ours[-1].lineno}" if ours else ""


_held: ContextVar[list[tuple[Request, str]] | None] = ContextVar("jax_stitch_held", default=None)
_lock = threading.Lock()
_warned: weakref.WeakSet[Request] = weakref.WeakSet()
