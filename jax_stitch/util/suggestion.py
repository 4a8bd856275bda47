"""What somebody who mistyped a name may have meant, and what is raised then."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from jax_stitch.util.user_errors import UserError

_LONGEST = 200
"""Longer words are no names, and difflib is quadratic."""


class WrongOption(UserError, ValueError):
    """An option or a variable has a value that there is not. The message lists those that there are."""


class UsageError(UserError, ValueError):
    """The command line names something that is not there or cannot be read. The message says what to do, in at most
    three lines."""


def suggestion(word: str, known: Iterable[str], quoted: bool = True) -> str:
    """Return ``"; did you mean 'now'?"`` for the known name nearest to a word, or nothing if none is near."""
    if len(word) > _LONGEST:
        return ""
    by_lower = {name.lower(): str(name) for name in known}
    nearest = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    if not nearest:
        return ""
    word_meant = by_lower[nearest[0]]
    return f"; did you mean {word_meant!r}?" if quoted else f"; did you mean {word_meant}?"
