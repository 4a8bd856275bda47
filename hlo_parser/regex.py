"""Regular expressions that are compiled when they are first matched.

The grammar has some eighty, of which most texts need a third; to compile them all takes longer than to read a small
module.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Later:
    """In the place of a ``re.Pattern``: each method becomes an attribute of its own when it is first asked for."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, method)
        return method


def regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern as ``re.compile`` does; what is wrong with ``pattern`` is found when it is first used."""
    return cast("re.Pattern[str]", _Later(pattern, flags))
