"""What is raised for text that is not HLO, and for a module that is not well formed."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from typing import Any

_EXCERPT = 120  # characters of the offending line that are shown


class HloParseError(ValueError):
    """Text that is not HLO. Its string is a report with the line and a caret under the place.

    Attributes: ``message``; ``line`` and ``column``, from 1, the column in characters; ``line_text``, the line (at most
    120 characters of it around the column); ``suggestion``, a name that was perhaps meant, or None.
    """

    def __init__(self, message: str, text: str, pos: int, suggestion: str | None = None) -> None:
        pos = min(pos, len(text))
        start = text.rfind("\n", 0, pos) + 1
        end = text.find("\n", pos)
        end = len(text) if end < 0 else end
        self.message = message
        self.line = text.count("\n", 0, start) + 1
        self.column = pos - start + 1
        self.suggestion = suggestion
        left = max(start, min(pos - _EXCERPT // 2, end - _EXCERPT))
        right = min(end, left + _EXCERPT)
        self.line_text = text[left:right]
        before, after = ("..." if left > start else ""), ("..." if right < end else "")
        # Tabs and control characters would move the caret away from its place.
        shown = "".join(c if c.isprintable() else " " for c in self.line_text)
        hint = f"\n  did you mean {suggestion!r}?" if suggestion else ""
        caret = " " * (len(before) + pos - left) + "^"
        super().__init__(f"{self.line}:{self.column}: {message}\n  {before}{shown}{after}\n  {caret}{hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.args, self.__dict__)


def _restored(args: tuple[Any, ...], state: dict[str, Any]) -> HloParseError:
    """Return the error as it was in another process."""
    error = HloParseError.__new__(HloParseError, *args)
    error.__dict__.update(state)
    return error


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to ``name``, if one is close."""
    if len(name) > 200:  # difflib is quadratic
        return None
    alike = (k for k in known if abs(len(k) - len(name)) <= 3)
    closest = difflib.get_close_matches(name, list(itertools.islice(alike, 5000)), n=1, cutoff=0.6)
    return closest[0] if closest else None
