"""What a command says where something was raised: what, where in the user's files, and what to do; no traceback."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import jax

from jax_stitch.frontend.capture.errors import CaptureError, UnstitchableError
from jax_stitch.util.formatting import one_line, shorten
from jax_stitch.util.jax_names import MissingName
from jax_stitch.util.place import PACKAGE
from jax_stitch.util.suggestion import UsageError
from jax_stitch.util.user_errors import UserError

FAILED, WRONG_USE = 1, 2

_LONGEST, _LINES = 500, 3
_PACKAGE = str(PACKAGE)
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OTHERS = ("<", *(str(Path(p).resolve()) for p in (*_LIBRARIES, str(jax.__file__).removesuffix("/__init__.py"))))
_TRACING = frozenset({("api.py", "_plan"), ("compare.py", "compare")})
"""Where functions of ours call the user's first, by way of JAX alone."""
_ALL_OF_IT = "--traceback shows all of it"


def explained(error: BaseException) -> tuple[list[str], int]:
    """Return at most three lines, and the exit status."""
    if isinstance(error, (UserError, MissingName)):
        return _short(str(error)), FAILED if isinstance(error, UnstitchableError) else WRONG_USE
    if isinstance(error, CaptureError):
        return [*_short(str(error))[:2], f"XLA cannot compile it for that device; {_ALL_OF_IT}"], FAILED
    if isinstance(error, MemoryError):
        return [f"there is not enough memory: {next(iter(_short(str(error))), '')}", "give smaller --args"], WRONG_USE
    frames = traceback.extract_tb(error.__traceback__)
    known = [frame for frame in frames if not _is_of_others(frame)]
    said = shorten(f"{type(error).__name__}: {next(iter(_short(str(error))), '')}", _LONGEST)
    if known and not _is_own(known[-1]):
        return [f"the function raised {said}", place(known[-1]), f"mend it or its arguments; {_ALL_OF_IT}"], WRONG_USE
    if known and (Path(known[-1].filename).name, known[-1].name) in _TRACING:
        return [f"the function raised {said}", place(frames[-1]), f"mend it or its arguments; {_ALL_OF_IT}"], WRONG_USE
    if isinstance(error, OSError):
        return [said, f"give it room and rights there, or name another place; {_ALL_OF_IT}"], FAILED
    report = "please report it with the folder that JAX_STITCH_DEBUG=1 has it write"
    where = place(known[-1]) if known else "outside of Python"
    return [f"an error of JAX Stitch, {said}", where, f"{report}; {_ALL_OF_IT}"], FAILED


def raised_in(what: str, error: BaseException) -> UsageError:
    """Return the error for a user's code that raised something while it was only loaded."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_of_others(f) and not _is_own(f)]
    said = shorten(one_line(f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"), _LONGEST)
    if isinstance(error, SyntaxError):
        at = f"at {error.filename}:{error.lineno}: {(error.text or '').strip()}"
    else:
        at = place(frames[-1]) if frames else "before its first line"
    return UsageError(f"{what} raised {said}\n{at}\nmend it and try again; {_ALL_OF_IT}")


def place(frame: traceback.FrameSummary) -> str:
    """Return where a frame is, in one line."""
    code = f": {frame.line}" if frame.line else ""
    return shorten(one_line(f"at {_shown(frame.filename)}:{frame.lineno}, in {frame.name}{code}"), _LONGEST)


def _shown(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename


def _is_own(frame: traceback.FrameSummary) -> bool:
    return _file(frame).startswith(_PACKAGE)


def _is_of_others(frame: traceback.FrameSummary) -> bool:
    """Return whether it is in a library, or in Python itself, and neither in the user's files nor in ours."""
    return not _is_own(frame) and _file(frame).startswith(_OTHERS)


def _file(frame: traceback.FrameSummary) -> str:
    """Return a frame's file, as it is named without links: a virtual environment may be one."""
    return frame.filename if frame.filename.startswith("<") else str(Path(frame.filename).resolve())


def _short(text: str) -> list[str]:
    lines = [shorten(one_line(line.rstrip()), _LONGEST) for line in text.splitlines() if line.strip()]
    return lines[:_LINES]
