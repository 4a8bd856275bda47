"""Loop-invariant code motion: what is the same in all lanes of a loop is computed before them.

So in the sweeps of a team's one thread, and in loops over rows.

A host's compiler moves loads and simple operations itself. It does not move what a function decides by comparisons, as
a conversion to an integer does: it makes a loop of its own for each outcome, and vectors of none of them.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from jax_stitch.ir.indices import var
from jax_stitch.ir.indices.expr import Expr, substituted
from jax_stitch.ir.indices.variables import ROW
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Counter, Element, Op, Ref
from jax_stitch.kernel.model import Kernel, Part, TeamShape
from jax_stitch.kernel.threads import How
from jax_stitch.kernel.walk import map_bodies, map_nodes, map_sweeps_of, names_read, nodes
from jax_stitch.util.values import replace

OUTER = "outer"
"""The variable of the loop over runs."""

LEAST_LANES = 8
"""Of fewer lanes a compiler makes vectors of several runs."""


def invariants_outside(kernel: Kernel) -> Kernel:
    """Return the kernel with what the lanes of a loop have in common before the loop."""
    return replace(kernel, parts=tuple(map(_part, kernel.parts)))


def _part(part: Part) -> Part:
    shape = part.shape
    over = {p.name for p in part.parameters if p.in_place}
    if isinstance(shape, TeamShape):
        is_alone = shape.threads == shape.pieces == 1
        return map_sweeps_of(part, lambda s: (s if _touches(s, over) else _sweep(s),)) if is_alone else part
    if shape.lanes_fastest or shape.rows_per_block < LEAST_LANES:
        return part
    own = {n.name for s in (*part.before, *part.body) for n in nodes(s) if isinstance(n, st.Allocate)}
    return replace(part, body=_body(part.body, own, over))


def _touches(s: st.Statement, over: Collection[str]) -> bool:
    """Return whether a loop has elements of arrays that lie ``over`` each other: one is read before the other is
    written in its place, of which the verifier knows inside one loop alone.
    """
    return any(isinstance(n, Element) and n.array in over for n in nodes(s))


def _sweep(s: st.Items | st.Sums) -> st.Statement:
    """Return a sweep, or a loop over its runs."""
    if not isinstance(s, st.Items):
        return s
    if s.divided or s.in_squares or s.outlined or s.lane.how is not How.LANE or s.lane.extent < LEAST_LANES:
        return s
    lines = _split(s.body, {s.lane.variable}, set())
    if lines is None:
        return s
    inner = replace(s, run=replace(s.run, extent=1), body=lines.own)
    moved = {s.run.variable: var(OUTER, s.run.extent)}
    body = map_nodes((*lines.shared, inner), Expr, lambda index: substituted(index, moved))
    return st.For.times(OUTER, s.run.extent, body)


def _body(body: st.Body, of_rows: Collection[str], over: Collection[str]) -> st.Body:
    return tuple(_rows(s, of_rows, over) for s in body)


def _rows(s: st.Statement, of_rows: Collection[str], over: Collection[str]) -> st.Statement:
    """Return a statement; ``of_rows`` are the names of what each row has for itself."""
    if isinstance(s, st.For | st.Choice | st.Scope):
        return map_bodies(s, lambda body: _body(body, of_rows, over))
    if not isinstance(s, st.Rows) or _touches(s, over):
        return s
    lines = _split(s.body, {ROW, *of_rows}, of_rows)
    return s if lines is None else st.Scope((*lines.shared, replace(s, body=lines.own)))


class _Lines(Struct, frozen=True):
    """The lines of a loop that all lanes have in common, and those that they do not."""

    shared: st.Body
    own: st.Body


def _split(body: st.Body, varying: set[str], arrays: Collection[str]) -> _Lines | None:
    """Return the lines of a loop; None where lanes have no operation in common. Names that are ``varying`` differ from
    lane to lane, as do the elements of ``arrays``.
    """
    inside = [n for line in body for n in nodes(line)]
    if any(isinstance(n, Counter) for n in inside):
        return None
    targets = [n.target for n in inside if isinstance(n, st.Assign | st.Add)]
    changing = {t.array for t in targets if isinstance(t, Element)}.union(arrays)
    varying = varying.union(t.name for t in targets if isinstance(t, Ref))
    shared: list[st.Statement] = []
    own: list[st.Statement] = []
    for line in body:
        reads = {n.array for n in nodes(line) if isinstance(n, Element)}
        if isinstance(line, st.Define) and not (changing & reads or varying.intersection(names_read(line.value))):
            shared.append(line)
        else:
            own.append(line)
            varying |= {n.name for n in nodes(line) if isinstance(n, st.Define | st.Allocate)}
    has_operations = any(isinstance(n, Op) for line in shared for n in nodes(line))
    return _Lines(tuple(shared), tuple(own)) if has_operations else None
