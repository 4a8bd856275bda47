"""Choices that all rows of a loop make alike go around the loop (loop unswitching).

A pad, a concatenation or a slice with steps chooses by indices. Where these are the same for all rows of a group, each
row would still ask, and a loop that asks is not made of vectors. Here the loop is written once for each way through
its choices, and the choices stand around these loops. All values of the indices are tried, so that a choice is left
out where an earlier one has decided it: of the elements of two interleaved arrays half take one way, half the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from jax_stitch.ir.indices.variables import BATCH
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Tests
from jax_stitch.kernel.model import Kernel, Part, RowShape
from jax_stitch.kernel.walk import nodes, variables
from jax_stitch.util.values import replace

MOST_POINTS = 1 << 16
"""Combinations of the indices' values that are tried; an index that makes them more stays unknown."""
MOST_STATEMENTS = 400
"""Statements of all copies of a loop: a host's compiler takes as long for them as for other kernels."""

Points = Mapping[str, np.ndarray]
"""The values of indices at each of the points that are left."""


def choices_outside(kernel: Kernel) -> Kernel:
    """Return the kernel with choices around its loops over rows where all rows choose alike."""
    return replace(kernel, parts=tuple(map(_part, kernel.parts)))


def points_of(shape: RowShape) -> Points:
    """Return the values of what all rows of a group have alike."""
    return with_index({}, BATCH, shape.rows // shape.period)


def with_index(points: Points, name: str, size: int | None) -> Points:
    """Return the points with one more index in [0, size), if that is known and they are not too many then."""
    before = len(next(iter(points.values()))) if points else 1
    if size is None or before * size > MOST_POINTS:
        return points
    return {**{n: np.repeat(v, size) for n, v in points.items()}, name: np.tile(np.arange(size), before)}


def taken(choice: st.Choice, points: Points) -> list[tuple[st.Case, Points, float]] | None:
    """Return the cases that are taken at some of the points, those points, and their share of all; an empty case for
    where none is taken. None where a test asks for more than the points tell.
    """
    if any(not set(variables(t.value)) <= points.keys() for c in choice.cases for t in c.tests):
        return None
    count = len(next(iter(points.values())))
    left = np.ones(count, bool)
    found: list[tuple[st.Case, Points, float]] = []
    for case in (*choice.cases, st.Case((), ())):
        here = left & _holds(case.tests, points, count)
        if np.any(here):
            found.append((case, {n: v[here] for n, v in points.items()}, float(np.mean(here))))
        left &= ~here
    return found


def _holds(tests: Tests, points: Points, count: int) -> np.ndarray:
    holding = np.ones(count, bool)
    for test in tests:
        at = test.value.evaluate(points)
        holding &= (test.low is None or at >= test.low) & (test.high is None or at <= test.high)
        holding &= at % test.step == 0
    return holding


def _part(part: Part) -> Part:
    shape = part.shape
    if not isinstance(shape, RowShape) or shape.rows_per_block == 1:
        return part
    body = _body(part.body, points_of(shape))
    return replace(part, body=body)


def _body(body: st.Body, points: Points) -> st.Body:
    return tuple(new for s in body for new in _statement(s, points))


def _statement(s: st.Statement, points: Points) -> st.Body:
    match s:
        case st.Rows(body):
            ways = _Ways()
            outside = ways.through(body, points)
            return (s,) if ways.are_too_many or outside == (s,) else outside
        case st.For():
            return (replace(s, body=_body(s.body, with_index(points, s.variable, s.extent))),)
        case st.Scope(body):
            return (replace(s, body=_body(body, points)),)
    return (s,)


class _Ways(Struct):
    """The ways through a body's choices, as they are found."""

    statements: int = 0

    @property
    def are_too_many(self) -> bool:
        return self.statements > MOST_STATEMENTS

    def through(self, body: st.Body, points: Points) -> st.Body:
        """Return loops over rows with ``body``, in choices, where indices have the values of ``points``."""
        k = 0
        while k < len(body):
            s = body[k]
            cases = taken(s, points) if isinstance(s, st.Choice) else None
            if cases is None:
                k += 1
            elif len(cases) == 1:
                body = (*body[:k], *cases[0][0].body, *body[k + 1 :])
            else:
                return self._in_cases(body, k, cases)
        self.statements += sum(isinstance(n, st.Define | st.Assign) for n in nodes(st.Rows(body)))
        return (st.Rows(body),)

    def _in_cases(self, body: st.Body, k: int, cases: Sequence[tuple[st.Case, Points, float]]) -> st.Body:
        made: list[st.Case] = []
        for number, (case, points, _) in enumerate(cases):
            if self.are_too_many:
                return ()
            tests: Tests = case.tests if number < len(cases) - 1 else ()
            made.append(st.Case(tests, self.through((*body[:k], *case.body, *body[k + 1 :]), points)))
        return (st.Choice(tuple(made)),)
