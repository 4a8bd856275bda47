"""The work of a part's threads, counted on the kernel language: instructions by class, each times the trip counts of
the loops around it (2021 paper, section 4.3: the instruction count of the latency-evaluator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from msgspec import Struct

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis.patterns.nest import UNKNOWN_TRIPS
from jax_stitch.devices import Device
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.choices_outside import points_of, taken, with_index
from jax_stitch.kernel.expressions import Element, Ref
from jax_stitch.kernel.intrinsics import CALL, TABLE, Extent, Function, Use
from jax_stitch.kernel.threads import Space, Who
from jax_stitch.kernel.walk import nodes
from jax_stitch.latency.classes import ARITHMETIC, EXCHANGE, GROUP, KEEP, SCAN, SCATTER, STORE, TURN, Work
from jax_stitch.latency.values import BY_ROW, EVERYWHERE, NOWHERE, Around, Depth, Stage, ValueCounter
from jax_stitch.util.values import replace

UNDER_WAY = 8
"""Loads in flight of a warp, which share the wait for memory (``wait`` in ``latency_cuda.toml``)."""


class Reads(Struct, frozen=True):
    """The reads of such a part, in bytes."""

    first: Mapping[int, float]
    """The distinct bytes read of each input, by its number: of a slice, or of rows taken from a table, no more than
    these.
    """
    again: float
    """Bytes that passes over the rows read again after earlier passes."""
    between: float
    """Bytes of a row that are accessed before it is read again."""


class Counted(Struct, frozen=True):
    """The instructions of a part, all its blocks together, and the bytes that it reads."""

    work: Work
    reads: Reads
    pieces: float = 0.0
    """Bytes that a GPU's threads access in pieces of lines, weighted by their cost over whole lines."""


def part_work(part: model.Part, blocks: int, device: Device) -> Counted:
    """Return the work of ``blocks`` blocks in a part whose lanes go over rows."""
    return _Counter(part, blocks, device).count()


class _Counter:
    def __init__(self, part: model.Part, blocks: int, device: Device):
        assert isinstance(part.shape, model.RowShape)
        self._part, self._shape, self._blocks, self._device = part, part.shape, blocks, device
        self._vectors = device.target.lanes_are_vectors
        self._values = ValueCounter(part, part.shape, device)
        self._points = points_of(part.shape)
        """The values of the variables that are uniform over a group's rows, at which the current statement runs."""
        self._orders = {c.name: c for c in part.comparators}
        self._buffers = {p.name: p for p in part.parameters}
        self._numbers = {p.name: k for k, p in enumerate(part.parameters)}
        threads = self._shape.rows_per_block * self._shape.lanes // self._shape.row_vector
        # An instruction costs as much for one element as for a whole warp.
        self._block = device.warp_size if self._vectors else threads
        self._each = 1 if self._vectors else threads
        """Threads of a block that run loops: on a CPU one runs those of all lanes."""
        self._groups = blocks * self._shape.sequence

    def count(self) -> Counted:
        layout, part = self._shape, self._part
        once = Around(self._blocks * self._block, self._blocks * self._block)
        group = Around(self._groups * self._block, self._groups * self._block)
        first: dict[str, float] = {}
        again = between = 0.0
        self._statements(part.before, once)
        for s in part.body:
            self._values.stage = Stage()
            self._statements((s,), group)
            moved = 0.0
            for name, count in self._values.stage.elements.items():
                buffer = self._buffers[name]
                now = min(count, buffer.size) * _bytes(buffer.dtype)
                own = name in self._values.stage.own
                again += now if own and name in first else 0.0
                first[name] = max(first.get(name, 0.0), now)
                moved += now if own else 0.0
            between = max(between, moved)
        self._statements(part.after, once)
        self._values.work[GROUP] += self._groups * self._each
        self._values.work[EXCHANGE] += (
            self._blocks * layout.lanes * (layout.cluster > 1)
        )  # A barrier of the cluster before the first row.
        inputs = {self._numbers[name]: n for name, n in first.items()}
        reads = Reads(inputs, again, between / max(1, layout.rows))
        return Counted(self._values.work, reads, self._values.pieces)

    # -- statements

    def _statements(self, body: Sequence[st.Statement], at: Around) -> None:
        for s in body:
            self._statement(s, at)

    def _statement(self, s: st.Statement, at: Around) -> None:
        match s:
            case st.Define(name, _, value):
                self._values.depths[name] = self._values.count(value, at)
            case st.Assign(target, value, who):
                done = self._only(who, at)
                self._assign(target, self._values.count(value, done), done)
            case st.Allocate(name, _, space, _, first) if not s.is_local:
                self._values.places[name] = space
                if first is not None:
                    self._values.count(first, at)
            case st.Choice():
                self._choice(s, at)
            case st.LeaveUnless(condition):
                self._values.count(condition, at)
            case st.Scope(body):
                self._statements(body, at)
            case _:
                self._loop(s, at)

    def _choice(self, s: st.Choice, at: Around) -> None:
        """Count each case: outside of loops over rows as often as it is taken; inside them every time, since vectors
        run all cases.
        """
        cases = taken(s, self._points) if not at.of_rows and self._vectors else None
        if cases is None:
            for case in s.cases:
                self._values.work[ARITHMETIC] += len(case.tests) * self._values.times(at, EVERYWHERE)
                self._statements(case.body, at)
            return
        outer = self._points
        for case, self._points, share in cases:
            self._statements(case.body, at.often(share))
        self._points = outer

    def _only(self, who: Who | None, at: Around) -> Around:
        """Return the repetitions of a statement that only some threads run: warps without such a thread skip it."""
        if who is Who.ONE_THREAD:
            return replace(at, times=float(self._blocks * self._device.warp_size))
        if who is Who.FIRST_LANE and not self._vectors and not self._shape.lanes_fastest:
            return replace(at, times=at.times / self._shape.lanes)
        return at

    def _assign(self, target: Ref | Element, depth: Depth, at: Around) -> None:
        if isinstance(target, Element):
            self._values.access(target, at, STORE, SCATTER)
            return
        if self._values.in_memory(target.name, at):
            self._values.work[KEEP] += self._values.times(at, EVERYWHERE)
        elif target.name not in self._values.places:
            self._values.depths[target.name] = self._values.depths.get(target.name, NOWHERE) | depth

    def _loop(self, s: st.Statement, at: Around) -> None:
        match s:
            case st.For():
                self._values.counters.add(s.variable)
                inside = replace(at.often(UNKNOWN_TRIPS if s.trips is None else s.trips), in_loop=True)
                self._values.work[TURN] += self._groups * self._each * inside.repeated / s.unroll
                outer, self._points = self._points, with_index(self._points, s.variable, s.extent)
                self._statements(s.body, inside)
                self._points = outer
            case st.Rows(body, low, high):
                share = 1.0 if high is None else (high - low) / self._shape.period
                at = replace(at, repeated=at.repeated * share)
                self._values.work[TURN] += self._groups * self._each * at.repeated * (self._vectors or not at.in_loop)
                self._statements(body, self._of_rows(at))
            case st.Pass():
                self._pass(s, at)
            case st.ScanPass(place, _, _, scans, steps):
                size = place.extent
                places = self._of_places(size, size, at)
                self._turns(size, size, 1, at)
                for step in steps:
                    self._statements(step.body, places)
                for scan in scans:
                    self._values.count(scan.first, at)
                    self._values.combine(scan.combiner, places.times)
                    if self._shape.lanes_fastest:  # Neighbouring lanes wait for each other.
                        self._values.work[SCAN] += self._shape.rows * size * at.repeated
            case _:
                self._together(s, at)

    def _pass(self, s: st.Pass, at: Around) -> None:
        places = replace(self._of_places(s.size, s.period, at), vector=s.vector)
        if s.first_row_only:
            share = self._blocks / self._shape.rows
            places = replace(places, times=places.times * share, alike=places.alike * share)
        if self._vectors and len(s.stretches) == 1 and any(map(self._reads_or_not, s.stretches[0].body)):
            # Conditional accesses keep a host compiler from vectorising the loop.
            times = self._shape.rows * s.size * at.repeated * self._device.warp_size
            places = replace(places, times=float(times), alone=True)
        if s.fetches and not self._vectors:
            self._fetched(s, places, at)
            return
        self._turns(s.size, s.period, s.vector, at)
        self._statements(s.row, self._of_rows(at) if self._shape.lanes_fastest else places)
        for stretch in s.stretches:
            share = (stretch.high - stretch.low) / s.period
            inside = replace(places, times=places.times * share, alike=places.alike * share, share=share)
            self._statements(stretch.body, inside)
        trips = 1
        for step in s.joins.steps if s.joins else ():
            trips *= s.joins.block if s.joins else 1
            self._statements(step.body, replace(places, times=places.times / trips, alike=places.alike / trips))

    def _fetched(self, s: st.Pass, places: Around, at: Around) -> None:
        """Count asynchronous copies of rows: one thread of each row starts them, and all wait as for so many loads."""
        times = self._groups * self._each * UNDER_WAY / len(s.stretches[0].body) * at.repeated
        for assign in s.stretches[0].body:
            assert isinstance(assign, st.Assign)
            self._values.count(assign.value, replace(places, times=times, alike=times))

    def _reads_or_not(self, s: st.Statement) -> bool:
        """Return whether a statement reads memory under a condition."""
        if not isinstance(s, st.Choice):
            return False
        return any(isinstance(n, Element) and n.array in self._buffers for n in nodes(s))

    def _together(self, s: st.Statement, at: Around) -> None:
        """Count a statement that the threads of a block run together."""
        match s:
            case st.Apply():
                self._intrinsic(s, at)
            case st.Barrier() | st.Allocate():
                pass
            case _:
                raise TypeError(f"a part in which lanes go over rows has a {type(s).__name__}")

    def _intrinsic(self, s: st.Apply, at: Around) -> None:
        row = TABLE[s.intrinsic]
        for kind, count in row.cost(s, Extent(self._shape, self._blocks, self._vectors, at.times)):
            if kind == KEEP:
                self._values.work[KEEP] += count * self._values.in_memory(s.cells[0], at)
            elif kind != CALL:
                self._values.work[kind] += count
            elif row.function is Function.COMBINER:
                self._values.combine(s.function, count)
            else:
                order = self._orders[s.function]
                self._values.operations((*order.body, order.result), count)
        for k, name in enumerate(s.cells):
            if row.use(k) is not Use.READS and self._values.places.get(name) is Space.ROW:
                self._values.depths[name] = frozenset({BY_ROW})

    # -- where statements stand

    def _of_rows(self, at: Around) -> Around:
        layout = self._shape
        if layout.lanes_fastest:
            times = float(layout.rows * (self._device.warp_size if self._vectors else layout.lanes))
        else:
            times = layout.rows * self._idle(1, 1) * (1 if self._vectors else layout.lanes)
        return replace(at, times=times * at.repeated, of_rows=True)

    def _of_places(self, size: int, period: int, at: Around) -> Around:
        stretch = self._idle(size, period)
        run = period if period < size else 0
        times = self._shape.rows * size * stretch * at.repeated
        alike = self._groups * self._block * size * at.repeated
        return replace(at, times=times, alike=alike, size=size, run=run, of_rows=True)

    def _idle(self, size: int, period: int) -> float:
        """Return the ratio of instructions per element to those of full warps. On a CPU the last vector of a loop is
        halved once, and the remainder runs one by one; on a GPU lanes past the end wait.
        """
        layout, lanes = self._shape, self._device.warp_size
        along = layout.lanes_fastest and size > 1
        if not self._vectors:
            return ceil(size / layout.lanes) * layout.lanes / size if along else 1.0
        size = period if along else min(layout.rows_per_block, layout.rows)
        rest = size % lanes
        return (size - rest + lanes * (rest // (lanes // 2) + rest % (lanes // 2))) / size

    def _turns(self, size: int, period: int, vector: int, at: Around) -> None:
        layout = self._shape
        if layout.lanes_fastest:
            trips = layout.rows * (size // period) * ceil(period / (layout.lanes * vector))
            self._values.work[TURN] += trips * (1 if self._vectors else layout.lanes) * at.repeated
        else:
            threads = 1 if self._vectors else layout.rows_per_block // layout.row_vector
            self._values.work[TURN] += self._groups * ceil(size / vector) * threads * at.repeated


def _bytes(dtype: str) -> int:
    return ELEMENT_TYPES[dtype].numpy.itemsize
