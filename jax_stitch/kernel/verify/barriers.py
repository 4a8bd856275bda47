"""Between a write to memory that threads share and another thread's read, and between a read and the next write, stands
a barrier that all of them come to; and where rows are copied to such memory, all wait for them, and the pieces are such
as can be copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.ir.indices.expr import Expr, Var, const, var
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.intrinsics import TABLE, Use
from jax_stitch.kernel.model import Kernel, Part, RowShape, TeamShape
from jax_stitch.kernel.threads import Reach, Space
from jax_stitch.kernel.verify.bounds import inside, values_of
from jax_stitch.kernel.verify.finding import Finding, shown


def _met(s: Any) -> str | None:
    """Return the name of a statement in which all threads of a block meet; None for another."""
    if isinstance(s, st.Apply):
        return s.intrinsic.replace("_", " ") if TABLE[s.intrinsic].meets else None
    return type(s).__name__.lower() if isinstance(s, st.Barrier | st.ScanPass) else None


Key = tuple[Any, ...] | None
"""Which thread an access is of: accesses with equal keys are of the same thread, None may be of any."""

_State = tuple[dict[str, frozenset[Key]], dict[str, frozenset[Key]], frozenset[str]]
"""The arrays written and read since the last barrier, and those that there are."""

OWN: Key = ("own place",)

FETCHED = 16
"""Bytes whose multiples the addresses and the sizes of bulk copies are (PTX ISA, ``cp.async.bulk``)."""


def _clash(a: Key, b: Key) -> bool:
    """Return whether two accesses may be of one element, and of different threads."""
    if a is None or b is None:
        return True
    if a == b:
        return False
    *items, at = a
    *others, other = b
    if items != others or not isinstance(at, Expr) or not isinstance(other, Expr) or at.terms != other.terms:
        return True
    counts: dict[str, int] = dict(items[:2])
    steps = [(abs(c), counts[atom.name]) for atom, c in at.terms if isinstance(atom, Var) and atom.name in counts]
    known = all(
        isinstance(atom, Var) or not counts.keys() & {v.name for v in atom.of.variables()} for atom, _ in at.terms
    )
    return not known or _is_between(at.offset - other.offset, sorted(steps, reverse=True))


def _is_between(distance: int, steps: list[tuple[int, int]]) -> bool:
    """Return whether elements of two threads can lie so far apart, by steps and counts of their indices."""
    if not steps:
        return distance == 0
    (step, count), *rest = steps
    left = sum(c * (n - 1) for c, n in rest)
    most = count - 1
    low, high = -((left - distance) // step), (left + distance) // step
    return any(_is_between(distance - k * step, rest) for k in range(max(low, -most), min(high, most) + 1))


class BarrierCheck:
    """Goes through a part's statements, loops' bodies twice: what stands at their end comes before their start."""

    def __init__(self, part: Part):
        self._part = part
        self._spread = isinstance(part.shape, TeamShape) and part.shape.spread
        self._arrays: set[str] = set()
        self._shared: dict[str, st.Allocate] = {}
        self._inputs = {p.name for p in part.parameters if not (p.written or p.scratch or p.crossing)}
        self._written: dict[str, set[Key]] = {}
        """The arrays written since the last barrier, and by whom."""
        self._read: dict[str, set[Key]] = {}
        self._items: tuple[Any, ...] = ()
        """The way in which the places of the statements at hand are shared out over threads."""
        self._found: dict[str, Finding] = {}
        self._seen: dict[Any, list[tuple[_State, _State]]] = {}
        """The states before a loop's body and behind it, by the loop."""
        self._left: list[_State] = []
        """The states in which threads leave the loop at hand."""

    def findings(self) -> Iterator[Finding]:
        sequence = 1 if isinstance(self._part.shape, TeamShape) else self._part.shape.sequence
        self._body(self._part.before, True)
        for _ in range(min(sequence, 2)):
            self._body(self._part.body, True)
        self._body(self._part.after, True)
        yield from self._found.values()

    def _fault(self, what: str, s: Any) -> None:
        self._found.setdefault(what, Finding(self._part.name, what, shown(s)))

    def _body(self, body: st.Body, uniform: bool) -> None:
        for s in body:
            self._statement(s, uniform)

    def _statement(self, s: Any, uniform: bool) -> None:
        fetches = isinstance(s, st.Pass) and s.fetches
        met = "pass" if fetches else _met(s)
        if met is not None and not uniform:
            self._fault(f"not all threads come to this {met}", s)
        match s:
            case st.Allocate(name, _, Space.SHARED):
                self._arrays.add(name)
                self._shared[name] = s
            case st.Allocate(name, _, Space.TEAM):
                self._arrays |= {name, f"next_{name}"}
            case st.Barrier(reach):
                if not self._spread or reach is Reach.GRID:
                    self._written.clear()
                    self._read.clear()
            case st.Pass() if fetches:
                self._fetched(s)
            case st.Swap(name):
                self._swap(name)
            case st.Apply():
                self._intrinsic(s)
            case st.For():
                inner = uniform and (bool(s.stops) or self._is_left_together(s))
                self._repeated(s, inner)
            case _:
                self._others(s, uniform and isinstance(s, st.Scope))

    def _intrinsic(self, s: st.Apply) -> None:
        """Check what an intrinsic accesses: each thread its own places, or together all of them."""
        row = TABLE[s.intrinsic]
        if row.waits:
            return
        for k, name in enumerate(s.cells):
            key = None if row.meets else OWN
            if row.use(k) is not Use.READS:
                self._writes(name, key, s)
            if row.use(k) is not Use.WRITES:
                self._reads(name, key, s, own=True)

    def _repeated(self, s: st.For, uniform: bool) -> None:
        """Check a loop's body twice, if it has several iterations, unless it was entered before in the same state: then
        what follows is known. Threads may come from its end, or from where they leave it.

        Loops in loops are gone through as often as there are states in which they begin, not twice as often as the loop
        around.
        """
        known = self._seen.setdefault((id(s), uniform, self._items), [])
        for _ in range(1 if s.trips == 1 else 2):
            before = self._state()
            after = next((left for begun, left in known if begun == before), None)
            if after is None:
                outer, self._left = self._left, []
                self._body(s.body, uniform)
                for written, read, _ in self._left:
                    for held, more in ((self._written, written), (self._read, read)):
                        for name, keys in more.items():
                            held.setdefault(name, set()).update(keys)
                self._left = outer
                known.append((before, self._state()))
            else:
                self._written, self._read = ({name: set(keys) for name, keys in held.items()} for held in after[:2])
                self._arrays |= after[2]

    def _state(self) -> _State:
        """Return the state that findings about the next statement depend on."""
        written, read = ({name: frozenset(keys) for name, keys in held.items()} for held in (self._written, self._read))
        return written, read, frozenset(self._arrays)

    def _is_left_together(self, s: st.For) -> bool:
        """Return whether a loop without a trip count is left only by a test of one shared element, first in an
        iteration: all threads read it behind a barrier, which other checks see to.
        """
        first, *others = s.body
        if not isinstance(first, st.LeaveUnless) or any(isinstance(x, st.LeaveUnless) for x in others):
            return False
        of = first.condition
        return isinstance(of, ex.Element) and of.array in self._arrays and of.at.is_const

    def _fetched(self, s: st.Pass) -> None:
        """Check copies of rows: threads meet before the copies, and once all are there."""
        shape = self._part.shape
        if not isinstance(shape, RowShape) or not shape.lanes_fastest or shape.cluster > 1:
            self._fault("rows are fetched where a block does not have them, one after the other", s)
        if s.row or s.joins or s.period != s.size or len(s.stretches) != 1:
            self._fault("what fetches rows does something else as well", s)
        for assign in s.stretches[0].body:
            if reason := self._unfit(assign, s.place):
                self._fault(reason, assign)
        self._written.clear()
        self._read.clear()

    def _unfit(self, assign: Any, place: st.Axis) -> str | None:
        """Return why a statement does not copy a row, place by place and in one piece, from what nobody writes."""
        size = place.extent
        target, source = getattr(assign, "target", None), getattr(assign, "value", None)
        array = self._shared.get(target.name) if isinstance(target, ex.Ref) else None
        if array is None or not isinstance(source, ex.Element) or source.array not in self._inputs:
            return "what is fetched is no row of an input, or goes to no array in shared memory"
        if not array.in_memory or array.size != size or {array.dtype, assign.target.dtype} != {source.dtype}:
            return f"{array.name} is not as the rows of {source.array}"
        itemsize = ELEMENT_TYPES[source.dtype].numpy.itemsize
        start = source.at - var(place.variable, size)
        if place.variable in {v.name for v in start.variables()}:
            return f"a row of {source.array} is not in one piece"
        pieces = start * itemsize, const(size * itemsize), const(array.offset)
        if any(piece % FETCHED != const(0) for piece in pieces):
            return f"rows of {source.array} or their places are at no multiple of {FETCHED} bytes, or do not end there"
        return None

    def _others(self, s: Any, uniform: bool) -> None:
        outer = self._items
        if isinstance(s, st.Items | st.Sums):
            axes = ((axis.variable, axis.extent) for axis in (s.run, s.lane))
            self._items = (*axes, s.split if isinstance(s, st.Sums) else 1)
        self._accesses(s)
        for child in inside(s):
            self._statement(child, uniform)
        self._items = outer
        if isinstance(s, st.LeaveUnless):
            self._left.append(self._state())

    def _swap(self, name: str) -> None:
        following = f"next_{name}"
        for seen in (self._written, self._read):
            held = {n: seen.pop(n) for n in (name, following) if n in seen}
            seen |= {following if n == name else name: keys for n, keys in held.items()}

    def _key(self, cell: ex.Ref | ex.Element) -> Key:
        if isinstance(cell, ex.Ref):
            return OWN
        return (*self._items, cell.at) if self._items else None

    def _accesses(self, s: Any) -> None:
        if not self._arrays:
            return
        target = s.target if isinstance(s, st.Assign | st.Add) else None
        for value in values_of(s):
            if value is not target:
                self._reads(value.name if isinstance(value, ex.Ref) else value.array, self._key(value), s)
        if target is not None and not isinstance(s, st.Add):
            self._writes(target.name if isinstance(target, ex.Ref) else target.array, self._key(target), s)

    def _reads(self, name: str, key: Key, s: Any, own: bool = False) -> None:
        """Check a read; ``own`` if the statement itself waits for what it has written."""
        if name not in self._arrays:
            return
        others = self._written.get(name, set()) - ({key} if own else set())
        if any(_clash(k, key) for k in others):
            self._fault(f"{name} is read where another thread may have written, without a barrier between", s)
        self._read.setdefault(name, set()).add(key)

    def _writes(self, name: str, key: Key, s: Any) -> None:
        if name not in self._arrays:
            return
        if any(_clash(k, key) for k in self._read.get(name, ())):
            self._fault(f"{name} is written where another thread may still read, without a barrier between", s)
        self._written.setdefault(name, set()).add(key)


def phase_findings(kernel: Kernel) -> Iterator[Finding]:
    """Yield buffers that one part writes and another reads: in a later phase, and known to be."""
    written: dict[str, int] = {}
    for number, phase in enumerate(kernel.phases):
        for call in phase.calls:
            part = kernel.parts[call.part]
            for p, name in zip(part.parameters, call.arguments, strict=True):
                if p.written:
                    written[name] = number
    for number, phase in enumerate(kernel.phases):
        for call in phase.calls:
            part = kernel.parts[call.part]
            for p, name in zip(part.parameters, call.arguments, strict=True):
                if p.written or p.scratch or name not in written:
                    continue
                if written[name] >= number:
                    yield Finding(part.name, f"{name} is read in the phase that writes it, or before")
                elif not p.crossing:
                    yield Finding(part.name, f"{name} is written by an earlier phase, and read as a constant")
