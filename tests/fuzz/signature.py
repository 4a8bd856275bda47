"""What tells one failure from another."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import jax_stitch
from jax_stitch.backend.compile.errors import KernelCompileError
from tests.fuzz import ways

_PACKAGE = Path(jax_stitch.__file__).parent


def signature_of(failure: BaseException) -> str:
    """What tells one failure from another: its type, and where or what it was."""
    name = type(failure).__name__
    if isinstance(failure, KernelCompileError):
        errors = [line for line in str(failure).splitlines() if "error" in line]
        return f"{name}: {plainly(errors[0].partition('error:')[2]) if errors else ''}"
    if isinstance(failure, ways.Checked):
        kind, _, rest = str(failure).partition(":")
        return f"{name}: {kind}" + plainly(rest.splitlines()[-1])[:80]
    frames = [f for f in traceback.extract_tb(failure.__traceback__) if Path(f.filename).is_relative_to(_PACKAGE)]
    if not frames:
        return f"{name}: {plainly(str(failure))[:100]}"
    last = frames[-1]
    inside = Path(traceback.extract_tb(failure.__traceback__)[-1].filename).is_relative_to(_PACKAGE)
    place = f"{Path(last.filename).relative_to(_PACKAGE)}:{last.lineno}"
    return f"{name} at {place}" + ("" if inside else f": {plainly(str(failure))[:60]}")


def plainly(text: str) -> str:
    """Without names and numbers that differ from one program to the next."""
    text = re.sub(r"[‘'`\"][^’'`\"]*[’'`\"]", "'...'", text)
    return re.sub(r"\d+", "N", text).strip()
