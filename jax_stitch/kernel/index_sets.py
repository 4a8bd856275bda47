"""Index-set splitting: a sweep that asks where it is becomes sweeps over the ranges in which the answers are known.

A stencil, a roll or a pad in a loop asks at each place whether it is at an edge. A loop that asks is not made of
vectors; what is left between the edges is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise, product
from types import MappingProxyType
from typing import Any

from jax_stitch.ir.indices.expr import Expr, const, substituted, var
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Counter, Test
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.walk import map_bodies, map_nodes, map_sweeps, nodes
from jax_stitch.util.values import replace

MOST_STATEMENTS = 800
"""Statements of all pieces of a sweep: a host's compiler takes as long for them as for other kernels."""

Range = tuple[int, int]
"""The first of some runs or lanes, and the first after them."""


def split_index_sets(kernel: Kernel) -> Kernel:
    """Return the kernel with the sweeps of teams of one thread split where their choices change."""
    return map_sweeps(kernel, lambda s: _pieces(s) if isinstance(s, st.Items) else (s,))


def _pieces(s: st.Items) -> tuple[st.Items, ...]:
    """Return a sweep's pieces: itself if there is one. Helpers share the largest where they share the whole."""
    inside = list(nodes(s))
    tests = [n for n in inside if isinstance(n, Test)]
    if not tests or any(isinstance(n, Counter) and n.variable in (s.run.variable, s.lane.variable) for n in inside):
        return (s,)
    runs, lanes = (list(pairwise(cuts(axis.variable, axis.extent, tests))) for axis in (s.run, s.lane))
    if len(runs) * len(lanes) == 1:
        return (replace(s, body=known(s.body)),)
    every, frame = product(runs, lanes), _frame(s, max(runs, key=_length), max(lanes, key=_length))
    pieces = _few(s, every) or _few(s, frame)
    if pieces is None:
        return (s,)
    if s.divided:
        largest = max(pieces, key=lambda p: p.run.extent * p.lane.extent)
        pieces = [replace(p, divided=p is largest) for p in pieces]
    return tuple(pieces)


def _few(s: st.Items, ranges: Iterable[tuple[Range, Range]]) -> list[st.Items] | None:
    """Return the pieces of a sweep; None where they have too many statements."""
    pieces: list[st.Items] = []
    left = MOST_STATEMENTS
    for of in ranges:
        pieces.append(_piece(s, *of))
        left -= sum(isinstance(n, st.Define | st.Assign) for n in nodes(pieces[-1]))
        if left < 0:
            return None
    return pieces


def _length(of: Range) -> int:
    return of[1] - of[0]


def _frame(s: st.Items, run: Range, lane: Range) -> Iterator[tuple[Range, Range]]:
    """Yield the places of these runs and lanes, and what is around them: before and after all lanes, and each run."""
    runs, lanes = s.run.extent, s.lane.extent
    around = [((0, run[0]), (0, lanes)), (run, (0, lane[0])), (run, lane)]
    around += [(run, (lane[1], lanes)), ((run[1], runs), (0, lanes))]
    yield from (of for of in around if all(map(_length, of)))


def cuts(variable: str, extent: int, tests: list[Test]) -> list[int]:
    """Return where the answers to tests of one variable alone change, with both ends."""
    found = {0, extent}
    for test in tests:
        variables = list(test.value.variables())
        if len(variables) != 1 or variables[0].name != variable or test.step != 1:
            continue
        stride = test.value.stride_of(variables[0])
        if stride in (1, -1):
            at = test.value.offset * -stride  # Where the value is zero.
            for bound, after in ((test.low, stride < 0), (test.high, stride > 0)):
                if bound is not None:
                    found.add(at + bound * stride + after)
    return sorted(c for c in found if 0 <= c <= extent)


def _piece(s: st.Items, run: Range, lane: Range) -> st.Items:
    """Return the places of a sweep from the first to below the second run, and lane."""
    moved = {
        axis.variable: var(axis.variable, high - low) + low for axis, (low, high) in ((s.run, run), (s.lane, lane))
    }

    def shifted(index: Expr) -> Expr:
        return substituted(index, moved)

    of_run, of_lane = replace(s.run, extent=run[1] - run[0]), replace(s.lane, extent=lane[1] - lane[0])
    return replace(s, run=of_run, lane=of_lane, body=known(map_nodes(s.body, Expr, shifted)))


def known(body: Any, narrowed: Mapping[str, Expr] = MappingProxyType({})) -> st.Body:
    """Return statements without the tests whose answers are known, and the cases that are never taken. ``narrowed``:
    variables, by their names, that are known to be in narrower ranges.
    """

    def inside(body: Any) -> st.Body:
        return known(body, narrowed)

    made = (_chosen(s, narrowed) if isinstance(s, st.Choice) else (map_bodies(s, inside),) for s in body)
    return tuple(new for several in made for new in several)


def _chosen(s: st.Choice, narrowed: Mapping[str, Expr]) -> Iterator[st.Statement]:
    cases: list[st.Case] = []
    for case in s.cases:
        answers = [_answer(t, narrowed) for t in case.tests]
        tests = tuple(t for t, answer in zip(case.tests, answers, strict=True) if answer is None)
        if False in answers:
            continue
        cases.append(replace(case, tests=tests, body=known(case.body, narrowed)))
        if not tests:
            break
    if cases and not cases[0].tests:
        yield from cases[0].body
    elif cases:
        yield replace(s, cases=tuple(cases))


def _answer(test: Test, narrowed: Mapping[str, Expr]) -> bool | None:
    """Return whether a test holds; None where that is not known."""
    value = substituted(test.value, narrowed) if narrowed else test.value
    if (test.low is not None and value.high < test.low) or (test.high is not None and value.low > test.high):
        return False
    inside = (test.low is None or test.low <= value.low) and (test.high is None or value.high <= test.high)
    return True if inside and (test.step == 1 or value % test.step == const(0)) else None
