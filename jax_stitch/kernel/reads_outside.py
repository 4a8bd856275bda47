"""Hoisting: reads of a row's values in the cases of a choice move before the choice.

A host's compiler makes vectors of a loop with choices where it may execute all cases. It may not where one case alone
reads a cell: the last of the differences along a row, say, whose end is a value of the row.
"""

from __future__ import annotations

from collections.abc import Collection, Set

from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Ref
from jax_stitch.kernel.model import Kernel, Part, RowShape
from jax_stitch.kernel.threads import Space
from jax_stitch.kernel.walk import map_bodies, nodes
from jax_stitch.util.values import replace


def reads_outside(kernel: Kernel) -> Kernel:
    """Return the kernel with the values of rows that choices read, read before them."""
    return replace(kernel, parts=tuple(map(_part, kernel.parts)))


def _part(part: Part) -> Part:
    if not isinstance(part.shape, RowShape):
        return part
    inside = [n for s in (*part.before, *part.body, *part.after) for n in nodes(s)]
    of_rows = {n.name for n in inside if isinstance(n, st.Allocate) and n.space is Space.ROW}
    return replace(part, body=_body(part.body, of_rows)) if of_rows else part


def _body(body: st.Body, of_rows: Set[str]) -> st.Body:
    made: list[st.Statement] = []
    for s in body:
        s = map_bodies(s, lambda inner: _body(inner, of_rows))
        if isinstance(s, st.Choice):
            written = {n.target.name for n in nodes(s) if isinstance(n, st.Assign) and isinstance(n.target, Ref)}
            cells = of_rows - written
            reads = [line for case in s.cases for line in case.body if _reads(line, cells) and line not in made]
            made += dict.fromkeys(reads)
            s = replace(s, cases=tuple(_without(case, cells) for case in s.cases))
        made.append(s)
    return tuple(made)


def _reads(line: st.Statement, cells: Collection[str]) -> bool:
    return isinstance(line, st.Define) and isinstance(line.value, Ref) and line.value.name in cells


def _without(case: st.Case, cells: Collection[str]) -> st.Case:
    return replace(case, body=tuple(line for line in case.body if not _reads(line, cells)))
