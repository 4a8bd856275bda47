"""``JAX_STITCH_DUMP=plan,source``: the stages of each program that is planned, in files."""

from __future__ import annotations

import hashlib
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jax_stitch.stages.names import STAGES, UnknownStageError, stages_named

if TYPE_CHECKING:
    from jax_stitch.capture.captured import Captured
    from jax_stitch.pipeline import Stitched

DUMP_VARIABLE = "JAX_STITCH_DUMP"
"""Names of stages, or "all"."""

FOLDER_VARIABLE = "JAX_STITCH_DUMP_DIR"
"""Where each program gets a folder; else ``jax_stitch_dump`` in the current one."""

_SUFFIXES = {"hlo": "hlo", "source": "cc"}


def wanted() -> tuple[str, ...]:
    """The stages that are to be written. Warns, once, of a name that is none."""
    try:
        return stages_named(os.environ.get(DUMP_VARIABLE, "").split(","), f"${DUMP_VARIABLE}")
    except UnknownStageError as error:
        _warn(f"nothing is dumped: {error}")
        return ()


def dump(captured: Captured, stitched: Stitched | None) -> None:
    """Writes what is wanted; of a program that could not be planned its HLO. A folder that cannot be written to is told
    of once, and the program runs all the same.
    """
    chosen = wanted()
    if not chosen:
        return
    from jax_stitch.stages.texts import stage_texts

    hlo: Mapping[str, Callable[[], str]] = {"hlo": lambda: captured.text}
    texts = hlo if stitched is None else stage_texts(stitched)
    parent = Path(os.environ.get(FOLDER_VARIABLE) or "jax_stitch_dump")
    device = captured.device.name if stitched is None else stitched.device.name
    try:
        folder = parent / folder_name(captured.name, device, captured.text)
        folder.mkdir(parents=True, exist_ok=True)
        for number, stage in enumerate(STAGES, 1):
            if stage in chosen and stage in texts:
                _write(folder / f"{number}_{stage}.{_SUFFIXES.get(stage, 'txt')}", texts[stage]())
    except OSError as error:
        _warn(
            f"the stages of {captured.name} cannot be written to {parent.absolute()}: {error.strerror or error}. "
            f"Name a folder that can be written to in ${FOLDER_VARIABLE}."
        )


def folder_name(function: str, device: str, text: str) -> str:
    """The same for the same program and device, so that a second run writes over the first."""
    letters = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in function)[:80]
    return f"{letters}-{device}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _write(path: Path, text: str) -> None:
    """Whole or not at all: another process may plan the same program."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        draft.write_text(text, encoding="utf-8", errors="surrogateescape")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _warn(message: str) -> None:
    with _lock:
        is_new = message not in _told
        _told.add(message)
    if is_new:
        warnings.warn(f"JAX Stitch: {message}", stacklevel=3)


_lock = threading.Lock()
_told: set[str] = set()
