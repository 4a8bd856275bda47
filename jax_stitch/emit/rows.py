"""Loops around straight pieces: what all rows do alike, what each row does, and loops around such pieces.

Each piece is a loop over rows of its own, so a row's value that a later piece reads is declared before all of them, as
a value of each row.
"""

from __future__ import annotations

from msgspec import Struct, field

from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Ref
from jax_stitch.kernel.walk import names_read
from jax_stitch.util.values import replace


class StraightCode(Struct):
    """Straight code: what all rows do alike, then what each row does."""

    alike: list[st.Statement] = field(default_factory=list)
    rows: list[st.Statement] = field(default_factory=list)


class Loop(Struct):
    """A loop, without what it repeats; and that."""

    head: st.For
    body: list[Item] = field(default_factory=list)


Item = StraightCode | Loop | st.LeaveUnless
"""A piece, a loop, or what ends the loop around it."""


def body_of(items: list[Item]) -> st.Body:
    """Return a part's body: declarations of what more than one piece reads, and the pieces in order."""
    shared = _shared(items)
    return (*(st.Allocate.of_row(name, dtype) for name, dtype in shared.items()), *_statements(items, shared))


def _pieces(items: list[Item]) -> list[StraightCode]:
    pieces: list[StraightCode] = []
    for item in items:
        if isinstance(item, StraightCode):
            pieces.append(item)
        elif isinstance(item, Loop):
            pieces += _pieces(item.body)
    return pieces


def _shared(items: list[Item]) -> dict[str, str]:
    """Return the values of a row that a piece other than their own reads, and their types."""
    defined: dict[str, tuple[int, str]] = {}
    pieces = _pieces(items)
    for number, piece in enumerate(pieces):
        for s in piece.rows:
            if st.is_name(s):
                defined[s.name] = number, s.dtype
    shared: dict[str, str] = {}
    for number, piece in enumerate(pieces):
        for s in piece.rows:
            for name in names_read(s):
                if name in defined and defined[name][0] != number:
                    shared[name] = defined[name][1]
    return shared


def _statements(items: list[Item], shared: dict[str, str]) -> list[st.Statement]:
    statements: list[st.Statement] = []
    for item in items:
        if isinstance(item, st.LeaveUnless):
            statements.append(item)
        elif isinstance(item, Loop):
            statements.append(replace(item.head, body=tuple(_statements(item.body, shared))))
        else:
            statements += item.alike
            if item.rows:
                statements.append(st.Rows(tuple(r for s in item.rows if (r := _of_row(s, shared)) is not None)))
    return statements


def _of_row(s: st.Statement, shared: dict[str, str]) -> st.Statement | None:
    if isinstance(s, st.Allocate) and s.name in shared:
        return None
    if isinstance(s, st.Define) and s.name in shared:
        return st.Assign(Ref(s.name, s.dtype), s.value)
    return s
