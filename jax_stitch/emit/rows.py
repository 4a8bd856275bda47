"""Loops around straight pieces: what all rows do alike, what each row does, and loops around such pieces.

Each piece is a loop over rows of its own, so a row's value that a later piece reads is declared before all of them, as
a value of each row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Ref
from jax_stitch.kernel.walk import names_read


@dataclass(slots=True)
class StraightCode:
    """Straight code: what all rows do alike, then what each row does."""

    alike: list[st.Statement] = field(default_factory=list)
    rows: list[st.Statement] = field(default_factory=list)


@dataclass(slots=True)
class Loop:
    """A loop, without what it repeats; and that."""

    head: st.Repeat
    body: list[Item] = field(default_factory=list)


Item = StraightCode | Loop | st.LeaveUnless
"""A piece, a loop, or what ends the loop around it."""


def body_of(items: list[Item]) -> st.Body:
    """A part's body: declarations of what more than one piece reads, and the pieces in order."""
    kept = _kept(items)
    return (*(st.RowValue(name, dtype) for name, dtype in kept.items()), *_statements(items, kept))


def _pieces(items: list[Item]) -> list[StraightCode]:
    found: list[StraightCode] = []
    for item in items:
        if isinstance(item, StraightCode):
            found.append(item)
        elif isinstance(item, Loop):
            found += _pieces(item.body)
    return found


def _kept(items: list[Item]) -> dict[str, str]:
    """The values of a row that a piece other than their own reads, and their types."""
    defined: dict[str, tuple[int, str]] = {}
    pieces = _pieces(items)
    for number, piece in enumerate(pieces):
        for s in piece.rows:
            if isinstance(s, st.Define | st.Declare):
                defined[s.name] = number, s.dtype
    found: dict[str, str] = {}
    for number, piece in enumerate(pieces):
        for s in piece.rows:
            for name in names_read(s):
                if name in defined and defined[name][0] != number:
                    found[name] = defined[name][1]
    return found


def _statements(items: list[Item], kept: dict[str, str]) -> list[st.Statement]:
    found: list[st.Statement] = []
    for item in items:
        if isinstance(item, st.LeaveUnless):
            found.append(item)
        elif isinstance(item, Loop):
            h = item.head
            found.append(st.Repeat(h.variable, h.trips, tuple(_statements(item.body, kept)), h.unroll, h.alone))
        else:
            found += item.alike
            if item.rows:
                found.append(st.Rows(tuple(r for s in item.rows if (r := _of_row(s, kept)) is not None)))
    return found


def _of_row(s: st.Statement, kept: dict[str, str]) -> st.Statement | None:
    if isinstance(s, st.Declare) and s.name in kept:
        return None
    if isinstance(s, st.Define) and s.name in kept:
        return st.Assign(Ref(s.name, s.dtype), s.value)
    return s
