"""Result files: written whole each time, so that whoever ends a run keeps what it had found."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.rows import Row, row_from

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Results:
    """What one run found; ``about`` is ``bench.about.about`` with the options of the run."""

    about: dict[str, Any]
    rows: tuple[Row, ...]
    name: str = ""
    """Of the file, without its ending."""

    def write(self, path: Path) -> None:
        """Replaces the file whole."""
        write_json(path, {"format": FORMAT, "about": self.about, "rows": [row.to_dict() for row in self.rows]})


def read(path: Path) -> Results:
    """The results in a file. Raises ``ValueError`` for what is no result file, ``OSError`` if it cannot be read."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ValueError(f"{path}: results of format {values['format']}; this program reads format {FORMAT}")
        return Results(values["about"], tuple(map(row_from, values["rows"])), path.stem)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} holds no results of `python -m bench run`: {error!r}") from error


def read_all(paths: Sequence[Path]) -> list[Results]:
    """The results in several files."""
    return [read(path) for path in paths]


def write_json(path: Path, values: Any) -> None:
    """Replaces a file whole: whoever reads it sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)
