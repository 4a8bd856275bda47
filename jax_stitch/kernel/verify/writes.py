"""Every element of an output is written, and once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from msgspec import Struct

from jax_stitch.ir.indices.expr import Expr
from jax_stitch.ir.indices.variables import BLOCK, ROW
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.context import bound_by
from jax_stitch.kernel.model import Kernel, Part, RowShape
from jax_stitch.kernel.threads import Who
from jax_stitch.kernel.verify.bounds import inside
from jax_stitch.kernel.verify.digits import covers
from jax_stitch.kernel.verify.finding import Finding, shown

_CHOICE = "choice"
"""The variable of what is done in some cases alone."""


class _Places(Struct, frozen=True):
    """Some places of a run: from ``low`` on, below ``high``, of ``extent``."""

    low: int
    high: int
    extent: int


class _Write(Struct, frozen=True):
    """A write: its index, how many values each variable around it has, and the statement."""

    at: Expr
    ranges: Mapping[str, int]
    statement: Any
    places: _Places | None
    """The places of a run that it is at, where not at all."""


class WriteCheck:
    """Gathers a part's writes to its buffers."""

    def __init__(self, part: Part, blocks: int):
        self._part, self._blocks = part, blocks
        self._outputs = {p.name: p for p in part.parameters if p.written}
        self._writes: dict[str, list[_Write]] = {name: [] for name in self._outputs}
        self._found: list[Finding] = []

    def findings(self) -> Iterator[Finding]:
        shape, part = self._part.shape, self._part
        rows, one = counts_of(shape), {BLOCK: self._blocks}
        if isinstance(shape, RowShape):
            groups = ceil(shape.period / shape.rows_per_block) * (shape.rows // shape.period)
            if groups > self._blocks * shape.sequence:
                yield Finding(part.name, f"{groups} groups of rows are too many for {self._blocks} blocks")
        for body, ranges in ((part.before, one), (part.body, rows), (part.after, one)):
            for s in body:
                self._statement(s, ranges, None, False)
        yield from self._found
        for name, writes in self._writes.items():
            yield from self._output(name, writes)

    def _output(self, name: str, writes: list[_Write]) -> Iterator[Finding]:
        size = self._outputs[name].size
        if not writes:
            if size:
                yield Finding(self._part.name, f"{name} is not written")
            return
        joined = _joined(writes)
        if joined is None:
            yield Finding(
                self._part.name, f"the stretches that write {name} are not the whole", shown(writes[0].statement)
            )
        elif any(_CHOICE in w.ranges for w in joined):
            return  # Which case writes which element is not known.
        elif covers([(w.at, w.ranges) for w in joined], size) is False:
            what = f"not each of the {size} elements of {name} is written once"
            yield Finding(self._part.name, what, shown(writes[0].statement))

    def _statement(self, s: Any, ranges: Mapping[str, int], places: _Places | None, shared: bool) -> None:
        match s:
            case st.Assign(ex.Element(array, at), _, who) if array in self._outputs:
                if who is Who.FIRST_ROW:
                    ranges = {**ranges, ROW: 1}
                if self._many_threads(ranges) and not (shared or who is not None):
                    self._found.append(Finding(self._part.name, f"{array} is written by several threads", shown(s)))
                self._writes[array].append(_Write(at, dict(ranges), s, places))
            case _:
                inner = inner_ranges(s, ranges)
                at_places = isinstance(s, st.Pass | st.ScanPass | st.Items | st.Sums) or shared
                own = self._rows_of(s, ranges) or places
                for child in inside(s):
                    self._statement(child, inner, _places_of(s, child) or own, at_places)

    def _rows_of(self, s: Any, ranges: Mapping[str, int]) -> _Places | None:
        """Return the rows of one of several loops over rows. (Of a choice it is not known what is written anyway.)"""
        if not isinstance(s, st.Rows) or s.high is None or _CHOICE in ranges:
            return None
        assert isinstance(self._part.shape, RowShape)
        return _Places(s.low, s.high, self._part.shape.period)

    def _many_threads(self, ranges: Mapping[str, int]) -> bool:
        """Return whether several threads come to a statement with the same row and place."""
        shape = self._part.shape
        return not isinstance(shape, RowShape) or shape.lanes > 1 or ROW not in ranges

    def surely(self, name: str) -> bool:
        """Return whether each element of an output is known to be written, and once; after ``findings``."""
        joined = _joined(self._writes[name])
        if not joined or any(_CHOICE in w.ranges for w in joined):
            return False
        return covers([(w.at, w.ranges) for w in joined], self._outputs[name].size) is True


def _places_of(s: Any, child: Any) -> _Places | None:
    """Return the places of a stretch of a pass that has others too."""
    if not isinstance(s, st.Pass) or not isinstance(child, st.Stretch):
        return None
    extent = s.place.extent
    return None if (child.low, child.high) == (0, extent) else _Places(child.low, child.high, extent)


def counts_of(node: Any) -> dict[str, int]:
    """Return how many values each variable has that a node binds."""
    return {name: high - low + 1 for name, (low, high) in bound_by(node).items()}


def inner_ranges(s: Any, ranges: Mapping[str, int]) -> dict[str, int]:
    """Return how many values each variable has inside a statement, by those around it."""
    inner = {**ranges, **counts_of(s)}
    if isinstance(s, st.For) and not s.stops:
        inner[s.variable] = 1 << 62
    if isinstance(s, st.Choice):
        inner[_CHOICE] = 2
    return inner


def _joined(writes: list[_Write]) -> list[_Write] | None:
    """Return the writes, with those of a pass's stretches as one; None where these are not the whole run."""
    joined: list[_Write] = []
    in_stretches: dict[Expr, list[_Write]] = {}
    for w in writes:
        if w.places is None:
            joined.append(w)
        else:
            in_stretches.setdefault(w.at, []).append(w)
    for group in in_stretches.values():
        at = 0
        places = sorted((w.places for w in group if w.places is not None), key=lambda p: p.low)
        for p in places:
            if p.low != at:
                return None
            at = p.high
        if at != places[0].extent:
            return None
        joined.append(group[0])
    return joined


def output_findings(kernel: Kernel) -> Iterator[Finding]:
    """Yield outputs that not exactly one part writes."""
    written: dict[str, int] = {}
    for phase in kernel.phases:
        for call in phase.calls:
            for p, name in zip(kernel.parts[call.part].parameters, call.arguments, strict=True):
                if p.written:
                    written[name] = written.get(name, 0) + 1
    for b in kernel.outputs:
        if written.get(b.name, 0) != 1:
            yield Finding(kernel.name, f"{b.name} is written by {written.get(b.name, 0)} parts")
