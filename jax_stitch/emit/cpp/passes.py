"""Passes over the places of rows, and scans along them, as C++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jax_stitch.emit.cpp import scalar
from jax_stitch.emit.cpp.lines import block
from jax_stitch.emit.cpp.values import WHO, Kind
from jax_stitch.ir.indices import var
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.literals import computed
from jax_stitch.kernel.walk import nodes

if TYPE_CHECKING:
    from jax_stitch.emit.cpp.statements import Statements


def pass_lines(writer: Statements, s: st.Pass) -> list[str]:
    """Return a pass: the loops over rows and places, the row's outside where lanes run fastest."""
    if s.first_row_only:
        return _one_row(writer, s)
    if s.fetches:
        return block("", _fetches(writer, s))
    counter = ["int turns_ = 0;"] * (s.joins is not None)
    row = writer.lines(s.row)
    if s.vector > 1:
        return block("ST_EACH_ROW", [*row, *_in_vectors(writer, s)])
    if writer.lanes_fastest:
        return [*counter, *block("ST_EACH_ROW", [*row, *_lanes_inside(writer, s)])]
    suffix = "_UNROLLED" * s.is_unrolled or "_AHEAD" * (writer.row_vector > 1)
    places, taken = f"{s.place.variable}, {s.size}", s.joins.block if s.joins else 1
    outside = f"ST_EACH_PLACE_OUTSIDE{suffix}({places})"
    place = writer.lines(s.stretches[0].body)
    if s.period != s.size:
        outside, taken = f"ST_EACH_RUN_OUTSIDE({s.size}, {s.period})", max(1, taken // s.period)
        place = block(f"ST_EACH_OF_RUN({s.place.variable}, {s.period})", place)
    ahead = [f"ST_FETCH_AHEAD({a.array}, {writer.values.index(a.at)}, {a.step})" for a in s.ahead]
    body = of_own_rows(writer, (*s.row, *s.stretches[0].body), row + place, places)
    each = ["ST_EACH_ROW_INSIDE"] + [f"ST_EACH_OF_ROWS_AT_PLACE({places})"] * (writer.row_vector > 1)
    inner = [*ahead, *block("ST_EACH_ROW_INSIDE", body), *_joins(writer, s.joins, taken, each)]
    return [*counter, *block(outside, inner)]


def _fetches(writer: Statements, s: st.Pass) -> list[str]:
    """Return copies of whole rows from buffers to arrays in shared memory."""
    copies: list[str] = []
    for statement in s.stretches[0].body:
        assert isinstance(statement, st.Assign)
        to, source = statement.target, statement.value
        assert isinstance(to, ex.Ref) and isinstance(source, ex.Element)
        start = writer.values.index(source.at - var(s.place.variable, s.size))
        copies.append(f"ST_FETCH_ROW({scalar.STORAGE[source.dtype]}, {to.name}, {s.size}, {source.array}, {start})")
    return ["ST_FETCH_ROWS", *block("ST_EACH_ROW", copies), "ST_FETCHED"]


def _in_vectors(writer: Statements, s: st.Pass) -> list[str]:
    """Return a pass by vectors of neighbouring places; their loads and stores stand around the loop over elements."""
    body = s.stretches[0].body
    before, after = _moved(writer, body, s.vector)
    places = f"{s.place.variable}, {s.size}, {s.vector}"
    each = block(f"ST_EACH_OF_VECTOR({places})", writer.lines(body), "};")
    return block(f"ST_EACH_VECTOR{'_UNROLLED' * s.is_unrolled}({places})", [*before, *each, *after])


def of_own_rows(writer: Statements, body: st.Body, lines: list[str], places: str = "") -> list[str]:
    """Return ``lines`` of a ``body``, repeated for each of the neighbouring rows of a thread if it has several; at one
    of ``places``, if there are any.
    """
    if writer.row_vector == 1:
        return lines
    before, after = _moved(writer, body, writer.row_vector)
    each = f"ST_EACH_OF_ROWS_AT_PLACE({places})" if places else "ST_EACH_OF_ROWS"
    return [*before, *block(each, lines), *after]


def _moved(writer: Statements, body: st.Body, vector: int) -> tuple[list[str], list[str]]:
    """Return the vector loads before the loop over elements, and the vector stores after it."""
    before: list[str] = []
    after: list[str] = []
    for statement in body:
        who = WHO[statement.who] if isinstance(statement, st.Assign) else ""
        for e in nodes(statement):
            if isinstance(e, ex.Element) and e.vector:
                ctype, at = scalar.STORAGE[e.dtype], writer.values.address(e)
                if isinstance(statement, st.Assign) and e is statement.target:
                    before.append(f"ST_VECTOR({ctype}, {e.vector}, {vector})")
                    after.append(f"{who}ST_STORE_VECTOR({ctype}, {e.vector}, {e.array}, {at}, {vector})")
                else:
                    before.append(f"ST_LOAD_VECTOR({ctype}, {e.vector}, {e.array}, {at}, {vector})")
    return before, after


def _lanes_inside(writer: Statements, s: st.Pass) -> list[str]:
    """Return the places of a row, shared out over neighbouring lanes."""
    if len(s.stretches) == 1:
        if s.period == s.size:
            return _each(writer, s, "PLACE", f"{s.place.variable}, {s.size}", s.stretches[0].body)
        return _each(writer, s, "IN_RUNS", f"{s.place.variable}, {s.size}, {s.period}", s.stretches[0].body)
    inner: list[str] = []
    for stretch in s.stretches:
        of_stretch = f"{s.place.variable}, {s.size}, {s.period}, {stretch.low}, {stretch.high}"
        inner += _each(writer, s, "IN_SEGMENT", of_stretch, stretch.body)
    return block(f"ST_EACH_RUN({s.size}, {s.period})", inner)


def _each(writer: Statements, s: st.Pass, kind: str, places: str, body: st.Body) -> list[str]:
    """Return a loop of ``body`` over the places of a row; over tiles of them if something is joined after each tile."""
    suffix = "_UNROLLED" * s.is_unrolled
    lines = writer.lines(body)
    if s.joins is None:
        return block(f"ST_EACH_{kind}{suffix}({places})", lines, "};")
    tile = "TILE" if kind == "PLACE" else f"TILE_{kind}"
    joins = _joins(writer, s.joins, s.joins.block, ["ST_EACH_LANE"])
    return [*block(f"ST_EACH_{tile}{suffix}({places})", lines)[:-1], *block("} ST_AFTER_EACH_TILE", joins, "};")]


def _joins(writer: Statements, joins: st.Joins | None, trips: int, each: Sequence[str]) -> list[str]:
    """Return the joins, each after ``joins.block`` times as many trips as the one before."""
    if joins is None:
        return []
    lines = ["++turns_;"]
    for k, step in enumerate(joins.steps):
        inner = writer.lines(step.body)
        for head in reversed(each):
            inner = block(head, inner)
        lines += block(f"if (turns_ % {trips * joins.block**k} == 0)", inner)
    return lines


def _one_row(writer: Statements, s: st.Pass) -> list[str]:
    """Return the places of the block's first row alone."""
    if s.vector > 1:
        return block("ST_ONE_ROW", _in_vectors(writer, s))
    each = f"ST_EACH_PLACE{'_UNROLLED' * s.is_unrolled}({s.place.variable}, {s.size})"
    return block("ST_ONE_ROW", block(each, writer.lines(s.stretches[0].body), "};"))


def scan_lines(writer: Statements, s: st.ScanPass) -> list[str]:
    """Return a pass with scans, batch by batch."""
    rows = "" if writer.lanes_fastest else "_ROWS"
    at = f"{s.size - 1} - at_" if s.backward else "at_"
    combiners = {scan.name: scan.combiner for scan in s.scans}
    declared = _scanned(writer, s, rows)
    lines: list[str] = []
    for step in s.steps:
        lines += block(f"ST_EACH_OF_TURN{rows}({at}, {s.size}, {s.batch})", writer.lines(step.body))
        lines += [f"ST_SCAN{rows}({combiners[name]}, {name}, {s.batch})" for name in step.scans]
    inner = [*declared, *block(f"ST_TURNS{rows}({s.size}, {s.batch})", lines)]
    return inner if rows else block("ST_EACH_SCANNED_ROW", inner)


def _scanned(writer: Statements, s: st.ScanPass, rows: str) -> Sequence[str]:
    lines: list[str] = []
    for scan in s.scans:
        writer.declare(scan.name, Kind.TURN, computed(writer.values.combiners[scan.combiner].dtypes[0]))
        first = writer.values.text(scan.first)
        lines.append(f"ST_SCANNED{rows}({scan.combiner}, {scan.name}, {first}, {s.size}, {s.batch})")
    return lines
