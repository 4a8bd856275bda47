"""The lines of the user's program that a plan is about, as excerpts of its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import Any

from jax_stitch.inspect.planned.model import PlannedProgram
from jax_stitch.inspect.planned.names import place_of
from jax_stitch.util.source_files import source_text

AROUND = 3
"""Lines shown before and after those that are computed."""
LONGEST = 400
"""Characters of a line that are shown."""


def files_of(program: PlannedProgram) -> list[str]:
    """Return the files of the program's lines, those that take longest first."""
    spent: dict[str, float] = defaultdict(float)
    for i, operation in enumerate(program.operations):
        file, _ = place_of(operation.source)
        if file and not operation.free:
            spent[file] += program.before.op_seconds[i]
    return sorted(spent, key=lambda f: -spent[f])


def excerpts(program: PlannedProgram) -> list[dict[str, Any]]:
    """Return, for each file, its short name and its lines, [number, text], around those that compute something."""
    lines: dict[str, set[int]] = defaultdict(set)
    for operation in program.operations:
        file, line = place_of(operation.source)
        if file and not operation.free:
            lines[file].add(line)
    files = files_of(program)
    names = _short_names(files)
    return [_excerpt(file, names[file], lines[file]) for file in files]


def _excerpt(file: str, name: str, computed: Collection[int]) -> dict[str, Any]:
    text = (source_text(file) or "").splitlines()
    text = text if max(computed) <= len(text) else []  # another file than the one that was traced
    shown = {line for at in computed for line in range(at - AROUND, at + AROUND + 1) if 0 < line <= len(text)}
    return {
        "name": name,
        "found": bool(text),
        "lines": [[n, text[n - 1][:LONGEST] if text else ""] for n in sorted(shown or computed)],
    }


def _short_names(files: Sequence[str]) -> dict[str, str]:
    """Return the end of each path, as long as it takes to tell them apart."""
    names: dict[str, str] = {}
    for file in files:
        parts = PurePath(file).parts
        for n in range(1, len(parts) + 1):
            name = "/".join(parts[-n:]).replace("//", "/")
            if sum(PurePath(other).parts[-n:] == parts[-n:] for other in files) == 1:
                break
        names[file] = name
    return names
