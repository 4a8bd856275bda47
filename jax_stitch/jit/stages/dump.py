"""``JAX_STITCH_DUMP=plan,graph:after=sink-producers``: stages of each program that is planned, and its graph after
passes, in files.
"""

from __future__ import annotations

import hashlib
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jax_stitch.jit.stages.names import AFTER, STAGES, UnknownStageError, stages_named

if TYPE_CHECKING:
    from jax_stitch.frontend.capture.captured import Captured
    from jax_stitch.ir.passes import Step
    from jax_stitch.pipeline import Stitched

DUMP_VARIABLE = "JAX_STITCH_DUMP"
"""Names of stages, or "all"."""

FOLDER_VARIABLE = "JAX_STITCH_DUMP_DIR"
"""Where each program gets a folder; else ``jax_stitch_dump`` in the current one."""

_SUFFIXES = {"hlo": "hlo", "source": "cc"}


def wanted() -> tuple[str, ...]:
    """Return the stages that are to be written. Warns, once, of a name that is none."""
    try:
        return stages_named((n for n in _names() if not n.startswith(AFTER)), f"${DUMP_VARIABLE}")
    except UnknownStageError as error:
        _warn(f"nothing is dumped: {error}")
        return ()


def _names() -> list[str]:
    return [name.strip().lower() for name in os.environ.get(DUMP_VARIABLE, "").split(",")]


def dump(captured: Captured, stitched: Stitched | None) -> None:
    """Write what is wanted; of a program that could not be planned its HLO. A folder that cannot be written to is told
    of once, and the program runs all the same.
    """
    chosen, passes = wanted(), [n.removeprefix(AFTER) for n in _names() if n.startswith(AFTER)]
    if not chosen and not passes:
        return
    from jax_stitch.jit.stages.texts import stage_texts

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
        if stitched is not None and passes:
            _write_passes(folder, passes, stitched.passes())
    except OSError as error:
        _warn(
            f"the stages of {captured.name} cannot be written to {parent.absolute()}: {error.strerror or error}. "
            f"Name a folder that can be written to in ${FOLDER_VARIABLE}."
        )


def _write_passes(folder: Path, names: Sequence[str], steps: Sequence[Step]) -> None:
    from jax_stitch.jit.stages.passes import after_lines

    for name in names:
        try:
            text = "".join(f"{line}\n" for line in after_lines(steps, name))
        except LookupError as error:
            _warn(f"${DUMP_VARIABLE}: {error.args[0]}")
        else:
            _write(folder / f"2_graph_after_{name}.txt", text)


def folder_name(function: str, device: str, text: str) -> str:
    """Return a name that is the same for the same program and device: a second run writes over the first."""
    letters = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in function)[:80]
    return f"{letters}-{device}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all: another process may plan the same program."""
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
