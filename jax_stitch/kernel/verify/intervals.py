"""What an index can be, where loops and conditions say what its variables can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod

import numpy as np

from jax_stitch.ir.indices.expr import Div, Expr, Mod, Var, Within
from jax_stitch.kernel.context import Range
from jax_stitch.kernel.expressions import Test
from jax_stitch.kernel.verify.finding import Fault
from jax_stitch.kernel.walk import variables

MOST_POINTS = 1 << 18
"""Values of variables that are tried one by one, where intervals do not tell."""


class Intervals:
    """The ranges of variables, and conditions that hold where one is."""

    def __init__(self) -> None:
        self.ranges: dict[str, Range] = {}
        self._holding: list[Sequence[Test]] = []
        self._failing: list[Sequence[Test]] = []

    @contextmanager
    def within(self, ranges: Mapping[str, Range]) -> Iterator[None]:
        """Give variables these ranges inside."""
        outer = dict(self.ranges)
        self.ranges |= ranges
        yield
        self.ranges = outer

    @contextmanager
    def where(self, holding: Sequence[Test], failing: Sequence[Sequence[Test]] = ()) -> Iterator[None]:
        """Assume inside that all of ``holding`` hold, and not all of each of ``failing``."""
        self._holding.append(holding)
        self._failing += failing
        yield
        self._holding.pop()
        del self._failing[len(self._failing) - len(failing) :]

    def check(self, index: Expr, size: int) -> None:
        """Raise ``Fault`` where an index can be outside of [0, size)."""
        try:
            low, high = self.interval(index)
            if low >= 0 and high < size:
                return
        except Fault:
            low = high = 0
        reached = self._tried(index, size)
        if reached is not None:
            raise Fault(f"index {reached} of {size} elements")

    def interval(self, index: Expr) -> Range:
        """Return the least and the greatest value that an index can have, or less and more than those."""
        low = high = index.offset
        for atom, c in index.terms:
            ends = self._atom(atom)
            low += c * ends[0 if c > 0 else 1]
            high += c * ends[1 if c > 0 else 0]
        for test in (t for tests in self._holding for t in tests if t.value.terms == index.terms):
            shift = index.offset - test.value.offset
            low = low if test.low is None else max(low, test.low + shift)
            high = high if test.high is None else min(high, test.high + shift)
        return low, high

    def _atom(self, atom: Var | Div | Mod | Within) -> Range:
        if isinstance(atom, Var):
            low, high = self.ranges.get(atom.name, (atom.low, atom.high))
            if low < atom.low or high > atom.high:
                raise Fault(f"{atom.name} is taken to be in {atom.low}..{atom.high}, and is in {low}..{high}")
            return low, high
        low, high = self.interval(atom.of)
        if isinstance(atom, Within):
            if low < atom.low or high > atom.high:
                raise Fault(f"{atom.of} is taken to be in {atom.low}..{atom.high}")
            return low, high
        if low < 0:
            raise Fault(f"{atom.of} can be negative, and is divided")
        if isinstance(atom, Div):
            return low // atom.by, high // atom.by
        return (low, high) if high < atom.by else (0, atom.by - 1)

    # -- one by one

    def _tried(self, index: Expr, size: int) -> int | None:
        """Return a value outside of [0, size) that the index has, all values of its variables tried; or so many of
        each, with the ends of all ranges among them, that a fault shows.
        """
        tests = [*(t for tests in self._holding for t in tests), *(t for tests in self._failing for t in tests)]
        wanted = set(variables(index))
        near = [t for t in tests if wanted & set(variables(t.value))]
        names = sorted(wanted | {n for t in near for n in variables(t.value)})
        claimed = {v.name: (v.low, v.high) for e in (index, *(t.value for t in near)) for v in e.variables()}
        ranges = [self.ranges.get(n, claimed[n]) for n in names]
        values = dict(zip(names, _points(ranges, near), strict=True))
        possible = np.ones((), bool)
        for test in (t for tests in self._holding for t in tests if t in near):
            possible = possible & _holds(test, values)
        for failing in self._failing:
            if all(t in near for t in failing):
                some = np.ones((), bool)
                for test in failing:
                    some = some & _holds(test, values)
                possible = possible & ~some
        at = np.asarray(evaluated(index, values))
        wrong = possible & ((at < 0) | (at >= size))
        return int(np.broadcast_to(at, wrong.shape)[wrong][0]) if np.any(wrong) else None


def _points(ranges: Sequence[Range], tests: Sequence[Test]) -> list[np.ndarray]:
    """Return values of variables to try, each as an array with an axis of its own."""
    lengths = [high - low + 1 for low, high in ranges]
    points: list[np.ndarray] = []
    each = max(2, int(MOST_POINTS ** (1 / max(1, len(ranges)))))
    bounds = {b for t in tests for b in (t.low, t.high) if b is not None}
    for low, high in ranges:
        if prod(lengths) <= MOST_POINTS:
            values = np.arange(low, high + 1)
        else:
            near = {b + d for b, d in product(bounds, (-1, 0, 1)) if low <= b + d <= high}
            few = np.unique(np.concatenate([np.linspace(low, high, max(2, each - len(near))).astype(int), [*near]]))
            values = few.astype(int)
        points.append(values)
    axes = len(ranges)
    return [v.reshape([-1 if k == n else 1 for k in range(axes)]) for n, v in enumerate(points)]


def _holds(test: Test, values: Mapping[str, np.ndarray]) -> np.ndarray:
    at = evaluated(test.value, values)
    low = at >= test.low if test.low is not None else np.ones((), bool)
    high = at <= test.high if test.high is not None else np.ones((), bool)
    return low & high & (at % test.step == 0)


def evaluated(index: Expr, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return an index where variables have these values; C++ divides towards zero."""
    total = np.asarray(index.offset)
    for atom, c in index.terms:
        if isinstance(atom, Var):
            value = values[atom.name]
        else:
            value = evaluated(atom.of, values)
            if isinstance(atom, Div):
                value = np.trunc(value / atom.by).astype(int)
            elif isinstance(atom, Mod):
                value = np.fmod(value, atom.by)
        total = total + c * value
    return total
