"""The modules in what was given, and the choice of one.

A text may hold several, one after the other, as logs and bug reports do. Only the chosen one is read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import hlo_parser
from hlo_parser import HloParseError, Module
from jax_stitch.frontend.capture.errors import HloFileError
from jax_stitch.frontend.hlo_files import translate
from jax_stitch.frontend.hlo_files.content import Content, Kind
from jax_stitch.util.formatting import one_line, shorten

# Strings and comments are stepped over: what stands in them is no header.
_PIECE = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|/\*(?s:.*?)\*/|//[^\n]*+'
    r"|(?P<header>^[ \t]*HloModule(?![\w.\-])[ \t]*(?P<name>[\w.\-]*+))",
    re.MULTILINE,
)
_SHOWN = 8
"""Names that an error lists."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A module that is there to be chosen."""

    name: str
    load: Callable[[], Module]
    """Reads it; raises HloFileError."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The module, where messages say that it is from, and what the user should know about the choice."""

    module: Module
    where: str
    notes: tuple[str, ...] = ()


def choose(content: Content, wanted: str | int | None) -> Chosen:
    """Return the module of that name or number (from 0), or the first. Raises HloFileError."""
    candidates = _candidates(content)
    number = _number([c.name for c in candidates], wanted, content.where)
    notes: tuple[str, ...] = ()
    where = content.where
    if len(candidates) > 1:
        where = f"{content.where}, module {candidates[number].name}"
        if wanted is None:
            others = _listed([c.name for c in candidates])
            notes = (f"the first of {len(candidates)} modules ({others}); `module` chooses another, by name or number",)
    return Chosen(candidates[number].load(), where, notes)


def _number(names: Sequence[str], wanted: str | int | None, where: str) -> int:
    if wanted is None:
        return 0
    if isinstance(wanted, str) and wanted not in names and wanted.lstrip("-").isdigit():
        wanted = int(wanted)
    if isinstance(wanted, int):
        if 0 <= wanted < len(names):
            return wanted
    elif names.count(wanted) == 1:
        return names.index(wanted)
    elif wanted in names:
        numbers = ", ".join(str(n) for n, name in enumerate(names) if name == wanted)
        raise HloFileError(f"{where} has several modules named {wanted!r}: choose by number ({numbers})")
    shown = f"number {wanted}" if isinstance(wanted, int) else repr(wanted)
    raise HloFileError(f"{where} has no module {shown}; choose one of these, by name or number: {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    shown = [f"{n} {shorten(name, 40)}" for n, name in enumerate(names[:_SHOWN])]
    return ", ".join([*shown, *([f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])])


def _candidates(content: Content) -> list[Candidate]:
    if content.kind is Kind.HLO_TEXT:
        return _of_text(content)
    texts = translate.hlo_texts(content)
    return [Candidate(name, functools.partial(_parsed, text, content.where, 0)) for name, text in texts]


def _of_text(content: Content) -> list[Candidate]:
    text = content.text
    headers = [m for m in _PIECE.finditer(text) if m["header"] is not None]
    names = [m["name"] or f"module {n}" for n, m in enumerate(headers)] or ["module 0"]
    starts = [0, *(m.start() for m in headers[1:])]  # What stands before the first, comments or not, is read with it.
    ends = [*starts[1:], len(text)]
    return [
        Candidate(name, functools.partial(_parsed, text[start:end], content.where, text.count("\n", 0, start)))
        for name, start, end in zip(names, starts, ends, strict=True)
    ]


def _parsed(text: str, where: str, lines_before: int) -> Module:
    try:
        return hlo_parser.parse(text)
    except HloParseError as error:
        hint = f"; did you mean {error.suggestion!r}?" if error.suggestion else ""
        line, excerpt = error.line + lines_before, "".join(c if c.isprintable() else " " for c in error.line_text)
        at = str(error).split("\n")[-2 if error.suggestion else -1].index("^")
        message = shorten(one_line(error.message), 200)
        caret = f"{' ' * at}^ mend the text here, or dump it again"
        raise HloFileError(f"{where}:{line}:{error.column}: {message}{hint}\n  {excerpt}\n{caret}") from None
    except RecursionError:
        raise HloFileError(f"{where} is nested too deeply to be read: flatten its computations") from None
