"""The loops of a pass over a row's places, with the lines of what is done at each."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.emit.body import PER_PLACE, PER_ROW, Scope
from jax_stitch.emit.lines import indent
from jax_stitch.schedule.model import LoopStage, Order, Part
from jax_stitch.schedule.runs import Segment, segments


def segments_of(part: Part, stage: LoopStage) -> list[Segment | None]:
    """The segments that a pass is cut into; one of None where it is in one piece."""
    return list(segments(stage.cuts, part.periods.get(stage.size, stage.size))) if stage.cuts else [None]


def pass_lines(
    part: Part,
    size: int,
    scopes: Sequence[Scope],
    cuts: Sequence[int] = (),
    unrolled: bool = False,
    joins: Sequence[Sequence[str]] = (),
) -> list[str]:
    """A pass over ``size`` places: the loops over rows and places (the row's outside where lanes run fastest) around
    the lines of each segment's scope.

    ``joins`` come after each run of turns, then of runs, and so on, for each thread; ``unrolled`` where values are
    kept in registers.
    """
    suffix = "_UNROLLED" if unrolled else ""
    row = [line for scope in scopes for line in scope.lines[PER_ROW]]
    scope = scopes[0]
    place = scope.lines[PER_PLACE]
    if scope.vector > 1:
        each = f"ST_EACH_OF_VECTOR(j, {size}, {scope.vector})"
        inner = [*scope.loads, each, *indent(place), "ST_END_OF_VECTOR", *scope.writes]
        inner = [f"ST_EACH_VECTOR{suffix}(j, {size}, {scope.vector})", *indent(inner), "ST_END_VECTOR"]
        return ["ST_EACH_ROW", *indent(row), *indent(inner), "ST_END_ROW"]
    period = part.periods.get(size, size)
    if part.split.order is Order.LANES:
        end = ["ST_END_PLACE"]
        if joins:
            end = ["ST_END_TURN", *_joins(joins, part.run, part.run, "ST_EACH_LANE", "}"), "ST_END_PLACES"]
        if cuts:
            inner = [f"ST_EACH_RUN({size}, {period})"]
            for s, bounds in zip(scopes, segments(cuts, period), strict=True):
                begin = f"ST_EACH_IN_SEGMENT{suffix}(j, {size}, {period}, {bounds[0]}, {bounds[1]})"
                inner += indent([begin, *indent(s.lines[PER_PLACE]), *end])
            inner.append("ST_END_RUNS")
        else:
            runs = f"IN_RUNS{suffix}(j, {size}, {period})" if period != size else f"PLACE{suffix}(j, {size})"
            inner = [f"ST_EACH_{runs}", *indent(place), *end]
        return ["ST_EACH_ROW", *indent(row), *indent(inner), "ST_END_ROW"]
    each, turns = f"ST_EACH_PLACE_OUTSIDE{suffix}(j, {size})", part.run
    if period != size:
        each, turns = f"ST_EACH_RUN_OUTSIDE({size}, {period})", max(1, part.run // period)
        place = [f"ST_EACH_OF_RUN(j, {period})", *indent(place), "ST_END_OF_RUN"]
    inner = [*dict.fromkeys(scope.ahead), "ST_EACH_ROW_INSIDE", *indent(row + place), "ST_END_ROW"]
    if joins:
        inner += _joins(joins, turns, part.run, "ST_EACH_ROW_INSIDE", "ST_END_ROW")
    return [each, *indent(inner), "ST_END_PLACE_OUTSIDE"]


def _joins(joins: Sequence[Sequence[str]], turns: int, run: int, each: str, end: str) -> list[str]:
    """The joins of each level, each after ``run`` times as many turns as the one before."""
    lines = ["++turns_;"]
    for level, of_level in enumerate(joins):
        lines += [f"ST_AFTER_TURNS({turns * run**level}) {each}", *indent(of_level), f"{end} }}"]
    return lines
