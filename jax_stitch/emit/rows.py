"""The text of loops around straight pieces: what all rows do alike, what each row does, and loops around such pieces.

On CUDA a row's values are a thread's registers throughout; on the host each piece is a loop over rows of its own, so a
row's value that a later piece reads is kept in an array with a place for each row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_DEFINED = re.compile(r"^const ([\w:]+) (\w+) = (.*);$")
_DECLARED = re.compile(r"^([\w:]+) (\w+);$")
_WORD = re.compile(r"(?<![\w.:])[A-Za-z_]\w*")


@dataclass(slots=True)
class Piece:
    """Straight lines: those that all rows do alike, then those of each row."""

    alike: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Repeat:
    """A loop: the line that begins it, one that stands before that (if not empty), and what it repeats."""

    head: str
    before: str = ""
    body: list[Item] = field(default_factory=list)


Item = Piece | Repeat | str
"""A piece, a loop, or a line that stands between them."""


def text_of(items: list[Item]) -> list[str]:
    """The lines of a kernel's body: declarations of what more than one piece reads, and the pieces in order."""
    kept = _kept(items)
    declarations = [f"ST_ROW_VALUE({ctype}, {name})" for name, ctype in kept.items()]
    return [*declarations, *_lines(items, kept)]


def _pieces(items: list[Item]) -> list[Piece]:
    found: list[Piece] = []
    for item in items:
        if isinstance(item, Piece):
            found.append(item)
        elif isinstance(item, Repeat):
            found += _pieces(item.body)
    return found


def _kept(items: list[Item]) -> dict[str, str]:
    """The values of a row that a piece other than their own reads, and their types."""
    defined: dict[str, tuple[int, str]] = {}
    pieces = _pieces(items)
    for number, piece in enumerate(pieces):
        for line in piece.rows:
            match = _DEFINED.match(line) or _DECLARED.match(line)
            if match:
                defined[match.group(2)] = number, match.group(1)
    found: dict[str, str] = {}
    for number, piece in enumerate(pieces):
        for line in piece.rows:
            for word in _WORD.findall(line):
                if word in defined and defined[word][0] != number:
                    found[word] = defined[word][1]
    return found


def _lines(items: list[Item], kept: dict[str, str]) -> list[str]:
    lines: list[str] = []
    for item in items:
        if isinstance(item, str):
            lines.append(item)
        elif isinstance(item, Repeat):
            lines += [item.before] if item.before else []
            lines += [f"{item.head} {{", *("  " + line for line in _lines(item.body, kept)), "}"]
        else:
            lines += item.alike
            if item.rows:
                rows = [r for line in item.rows if (r := _row_line(line, kept)) is not None]
                lines += ["ST_EACH_ROW_ALONE", *("  " + r for r in rows), "ST_END_ROW"]
    return lines


def _row_line(line: str, kept: dict[str, str]) -> str | None:
    if not kept:
        return line
    match = _DECLARED.match(line)
    if match and match.group(2) in kept:
        return None
    match = _DEFINED.match(line)
    if match and match.group(2) in kept:
        line = f"{match.group(2)} = {match.group(3)};"
    return _WORD.sub(lambda m: f"ST_R({m.group(0)})" if m.group(0) in kept else m.group(0), line)
