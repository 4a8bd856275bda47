"""Every index is inside its buffer or array, and counts places as the pass around it does; what is cached at places is
as large as that pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax_stitch.ir.indices.variables import BLOCK, ROW
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.context import Context, bound_by
from jax_stitch.kernel.forms import forms, names_inside
from jax_stitch.kernel.intrinsics import TABLE
from jax_stitch.kernel.model import Part
from jax_stitch.kernel.threads import Space
from jax_stitch.kernel.verify.finding import Fault, Finding, shown
from jax_stitch.kernel.verify.intervals import Intervals
from jax_stitch.kernel.walk import field_names


class BoundCheck:
    """Goes through a part with the ranges of the loops around each statement."""

    def __init__(self, part: Part, blocks: int):
        self._part = part
        self._intervals = Intervals()
        self._context = Context()
        values = {f.name: getattr(part.shape, f.name) for f in forms(type(part.shape))}
        self._context.enter(type(part.shape), values)
        self._intervals.ranges = {**self._context.ranges, BLOCK: (0, blocks - 1)}
        self._sizes = {p.name: p.size for p in part.parameters} | {t.name: len(t.values) for t in part.tables}
        self._places: int | None = None
        self._place: st.Axis | None = None
        """The variable of the places of a run, in the pass around a statement."""

    def findings(self) -> Iterator[Finding]:
        for s in (*self._part.before, *self._part.body, *self._part.after):
            yield from self._statement(s)

    def _statement(self, s: Any) -> Iterator[Finding]:
        try:
            self._own(s)
        except Fault as fault:
            yield Finding(self._part.name, str(fault), shown(s))
        if isinstance(s, st.Choice):
            yield from self._choice(s)
            return
        if not names_inside(type(s)):
            if isinstance(s, st.Define) and isinstance(s.value, ex.Start):
                self._intervals.ranges[s.name] = (0, s.value.high)
            return
        ranges = bound_by(s)
        outer = self._places, self._place
        if isinstance(s, st.Pass | st.ScanPass):
            self._places, self._place = s.size, s.place
        if isinstance(s, st.Rows) and s.high is not None:
            ranges = {ROW: (s.low, s.high - 1)}
        if isinstance(s, st.Stretch) and self._place is not None:
            ranges = {self._place.variable: (s.low, s.high - 1)}
        with self._intervals.within(ranges):
            for child in inside(s):
                yield from self._statement(child)
        self._places, self._place = outer

    def _choice(self, s: st.Choice) -> Iterator[Finding]:
        failing: list[ex.Tests] = []
        for case in s.cases:
            with self._intervals.where(case.tests, list(failing)):
                for child in case.body:
                    yield from self._statement(child)
            failing.append(case.tests)

    def _own(self, s: Any) -> None:
        """Check a statement's own accesses, and the sizes that it declares or relies on."""
        match s:
            case st.Allocate(name, _, Space.REGISTERS | Space.SHARED, size):
                self._sizes[name] = size
            case st.Allocate(name, _, Space.TEAM, size):
                self._sizes[name] = self._sizes[f"next_{name}"] = size
            case st.Apply(intrinsic, cells, _, sizes):
                if (places := TABLE[intrinsic].places) is not None:
                    for name in cells:
                        self._same_size(name, sizes[places])
            case st.Add(target, _, starts):
                with self._intervals.within({start.name: (0, start.high) for start in starts}):
                    self._element(target)
                return
            case st.Prefetch() | st.Choice():
                return
        for node in values_of(s):
            if isinstance(node, ex.Element):
                self._element(node)
            elif isinstance(node, ex.Ref) and node.name in self._sizes:
                if self._places is None:
                    raise Fault(f"{node.name} is cached at places, and this is at none")
                self._same_size(node.name, self._places)

    def _same_size(self, name: str, size: int) -> None:
        if self._sizes.get(name) != size:
            raise Fault(f"{name} has {self._sizes.get(name)} places, and the pass {size}")

    def _element(self, e: ex.Element) -> None:
        size = self._sizes.get(e.array)
        if size is None:
            raise Fault(f"{e.array} is no array")
        place = self._place
        if place is not None and any(v.name == place.variable and v.high >= place.extent for v in e.at.variables()):
            what = f"counts the places of the whole pass, which goes in runs of {place.extent}"
            raise Fault(f"{e.array}[{e.at}] {what}")
        try:
            self._intervals.check(e.at, size)
        except Fault as fault:
            raise Fault(f"{e.array}[{e.at}] reaches {fault}") from fault


def inside(s: Any) -> Iterator[Any]:
    """Yield the nodes inside a statement, which are looked at in turn."""
    for name in names_inside(type(s)):
        value = getattr(s, name)
        if value is not None:
            yield from value if isinstance(value, tuple) else (value,)


def values_of(s: Any) -> Iterator[Any]:
    """Yield the cells and elements in the expressions of a statement itself."""
    nested = names_inside(type(s))
    waiting: list[Any] = []
    for name in field_names(type(s)):
        if name not in nested:
            value = getattr(s, name)
            waiting += value if isinstance(value, tuple) else (value,)
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind is ex.Element or kind is ex.Ref:
            yield node
        elif kind in _OPERATIONS:
            waiting += ex.operands_of(node)
        elif kind is st.Assign:
            waiting += [node.target, node.value]
        elif kind is st.Inside:
            waiting.append(node.of)


_OPERATIONS = {ex.Field, ex.Op, ex.Combine, ex.Make, ex.Products, ex.Fused, ex.Pick, ex.Start}
