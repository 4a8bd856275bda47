"""Values in groups, joined one after another: union-find.

That of networkx takes longer to import than a small function takes to be planned.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

_T = TypeVar("_T", bound=Hashable)


class Groups(Generic[_T]):
    """Each value is in a group of its own until it is joined with others."""

    def __init__(self, values: Iterable[_T] = ()) -> None:
        self._above: dict[_T, _T] = {value: value for value in values}

    def group(self, value: _T) -> _T:
        """Return the member that stands for the group of a value, which is added where it is new."""
        above = self._above
        top = above.setdefault(value, value)
        while above[top] != top:
            top = above[top]
        while value != top:  # The next search is shorter.
            above[value], value = top, above[value]
        return top

    def join(self, *values: _T) -> None:
        """Put the groups of these values together."""
        top = self.group(values[0])
        for value in values[1:]:
            self._above[self.group(value)] = top

    def all(self) -> list[list[_T]]:
        """Return the groups and their members, in the order in which they were added."""
        members: dict[_T, list[_T]] = {}
        for value in self._above:
            members.setdefault(self.group(value), []).append(value)
        return list(members.values())
