"""What single values take, and what their parts differ by: from row to row, from place to place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.devices import Device
from jax_stitch.ir.indices.expr import Expr, Mod, Var
from jax_stitch.ir.indices.variables import BATCH, PLACE, ROW, RUN
from jax_stitch.kernel import model
from jax_stitch.kernel.expressions import (
    Combine,
    Counter,
    Element,
    Fused,
    IndexValue,
    Op,
    Pick,
    Products,
    Ref,
    Start,
    Value,
    operands_of,
)
from jax_stitch.kernel.literals import HALF
from jax_stitch.kernel.threads import Space
from jax_stitch.kernel.walk import nodes, variables
from jax_stitch.latency.classes import (
    ARITHMETIC,
    COMBINE,
    GATHER,
    INTERLEAVE,
    KEEP,
    LOAD,
    STORE,
    WIDE,
    Work,
    instructions,
)
from jax_stitch.schedule.runs import SECTOR
from jax_stitch.schedule.strides import is_unit_stride
from jax_stitch.util.values import replace

_ROWS, _PLACES = frozenset({ROW, BATCH}), frozenset({PLACE, RUN})
PIECES = 1.45
"""How many times longer level-2 cache takes for sectors apart than for lines of four: on an H200 2.8 TB/s for 4.1. What
is read is in the nearest cache for those that use the rest of a sector; what is written is sent at once."""
SMALL = 128 << 10
"""Bytes of an array that the nearest cache of a multiprocessor has, once read."""
FEW = 32
"""Elements that a thread has in registers from pass to pass, since a compiler unrolls the loops over them."""
LINE = 128
_FULL = 0.5
"""The part of the sectors that a warp touches that is to be of use where its threads access neighbours."""

BY_ROW, BY_PLACE = "row", "place"
Depth = frozenset[str]
"""Whether something differs from row to row, and from place to place."""
NOWHERE: Depth = frozenset()
EVERYWHERE: Depth = frozenset({BY_ROW, BY_PLACE})


class Around(Struct, frozen=True):
    """The loops around a statement."""

    times: float
    """How often they have it done, if nothing in it can be done once for several of them: for single elements."""
    alike: float
    """How often for all rows at once, at each place; where rows are neighbours."""
    size: int = 1
    """Places of a row."""
    run: int = 0
    """Those of the runs that they are in; 0 for one run."""
    repeated: float = 1.0
    """By loops that all threads go through."""
    share: float = 1.0
    alone: bool = False
    """Whether elements are computed one by one."""
    of_rows: bool = False
    vector: int = 1
    """Neighbouring places that a thread has at a time."""
    in_loop: bool = False
    """Whether a loop of the program is around it."""

    def often(self, trips: float) -> Around:
        """Return the same with one more loop around it, which all threads go through."""
        return replace(self, times=self.times * trips, alike=self.alike * trips, repeated=self.repeated * trips)


class Stage(Struct):
    """What one statement of a part's body reads."""

    elements: dict[str, float] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)


class ValueCounter:
    """Counts values and accesses of one part, wherever they stand; ``work`` has the instructions."""

    def __init__(self, part: model.Part, layout: model.RowShape, device: Device):
        self.work: Work = defaultdict(float)
        self.pieces = 0.0
        """Bytes that threads of a GPU access in pieces of lines, as many more as they take longer than whole ones."""
        self.places: dict[str, Space] = {}
        """How each cell is declared."""
        self.depths: dict[str, Depth] = {}
        """Of each name that stands for a value."""
        self.counters: set[str] = set()
        """Variables of loops that all threads go through alike."""
        self.stage = Stage()
        self._seen: set[tuple[str, Expr]] = set()
        self._layout, self._device = layout, device
        self._vectors = device.target.lanes_are_vectors
        self._combiners = {c.name: c for c in part.combiners}
        self._buffers = {p.name: p for p in part.parameters}

    def count(self, value: Value, at: Around) -> Depth:
        """Count what makes a value; how deep it is."""
        depth = self._own_depth(value)
        for operand in operands_of(value):
            depth |= self.count(operand, at)
        times = self.times(at, depth)
        match value:
            case Op():
                self._instructions(value, times)
            case Combine(combiner):
                self.combine(combiner, times)
            case Element():
                self.access(value, at, LOAD, GATHER)
            case Ref(name) if self.in_memory(name, at):
                self.work[KEEP] += times
            case Products(_, pairs):
                self.work[ARITHMETIC] += 2 * times * len(pairs)
            case Pick(_, _, choices):
                self.work[ARITHMETIC] += times * len(choices)
            case Start():
                self.work[ARITHMETIC] += 2 * times
            case Fused() | IndexValue() | Counter():
                self.work[ARITHMETIC] += times * (2.0 if value.dtype in WIDE else 1.0)
        return depth

    def _instructions(self, op: Op, times: float) -> None:
        for kind, weight in instructions(op):
            self.work[kind] += weight * times

    def _own_depth(self, value: Value) -> Depth:
        match value:
            case Ref(name):
                return self._depth_of(name)
            case Counter(variable):
                return self._depth_of(variable)
            case IndexValue(at) | Pick(at):
                return self._depth(variables(at))
            case Element(array, at):
                # What rows keep in shared memory differs between them.
                own = frozenset({BY_ROW}) if self.places.get(array) is Space.SHARED else NOWHERE
                return own | self._depth(variables(at))
        return NOWHERE

    def _depth(self, names: Iterable[str]) -> Depth:
        depth = NOWHERE
        for name in names:
            depth |= self._depth_of(name)
        return depth

    def _depth_of(self, name: str) -> Depth:
        if name in _ROWS:
            return frozenset({BY_ROW})
        if name in _PLACES:
            return frozenset({BY_PLACE})
        if name in self.depths:
            return self.depths[name]
        place = self.places.get(name)
        if place is None:
            return NOWHERE
        return frozenset({BY_ROW}) if place is Space.ROW else EVERYWHERE

    def in_memory(self, name: str, at: Around) -> bool:
        """Return whether a cell is not in a register: a CPU has arrays for what a GPU's threads have in theirs, of a
        row's own values where loops go from one to the other.
        """
        place = self.places.get(name)
        if place is Space.SHARED:
            return True
        return self._vectors and (place is Space.REGISTERS or (place is Space.ROW and at.in_loop))

    def access(self, element: Element, at: Around, straight: str, apart: str) -> None:
        address = element.at
        names = {v.name for v in address.variables()} - self.counters
        times = self.times(at, self._own_depth(element) | (EVERYWHERE if straight is STORE else NOWHERE))
        buffer = self._buffers.get(element.array)
        wide = 2.0 if element.dtype in WIDE else 1.0
        # Load-store lanes take four bytes a clock: of narrower elements several, where they come in vectors.
        narrow = min(wide, ELEMENT_TYPES[element.dtype].numpy.itemsize / 4) if element.vector else wide
        if buffer is None and self.places.get(element.array) is not None:
            self.work[KEEP] += times * min(1.0, narrow)
            self.work[ARITHMETIC] += times if element.dtype in HALF else 0.0
            return
        inner = PLACE if self._layout.lanes_fastest and at.size > 1 else ROW
        if inner not in names and not any(map(self._depth_of, names - _ROWS - _PLACES)):
            kind, times = straight, times / self._device.warp_size  # One number for neighbouring threads.
        else:
            between = _is_interleaved(address, at.run)
            self.work[INTERLEAVE] += times if between else 0.0
            each = at.vector if inner == ROW and element.vector else 1
            near = at.alone or between or _is_straight(address, inner, self._device.warp_size, each)
            size = ELEMENT_TYPES[element.dtype].numpy.itemsize
            short = inner == ROW and self._layout.rows_per_block * size < LINE
            filled, in_lines = (1.0, 1.0) if self._vectors or (near and not short) else self._filled(element, at)
            kind = straight if near or (not self._vectors and filled >= _FULL) else apart
            wide = narrow
            if in_lines < _FULL and buffer is not None and buffer.size * size > SMALL:
                self._pieces(element, times * size, at, filled if straight is STORE or short else 1.0)
        self.work[kind] += wide * times
        if element.dtype in HALF:
            self.work[ARITHMETIC] += times
        if buffer is not None and not buffer.written:
            self._read(element.array, address, at)

    def _pieces(self, element: Element, size: float, at: Around, filled: float) -> None:
        """Count an access in pieces; what few places a thread has of a row it reads once, whichever passes go
        over them.
        """
        place = element.array, element.at
        few = at.size * self._layout.row_vector <= FEW * self._layout.lanes
        if place not in self._seen or not few:
            self.pieces += size * PIECES / filled
        self._seen.add(place)

    def _filled(self, element: Element, at: Around) -> tuple[float, float]:
        """Return how much of the sectors that it touches a warp of a GPU, of whatever rows and places, uses: all of
        them if there are runs of a row between those of other rows, say; and how much of the lines.
        """
        shape, threads = self._layout, np.arange(self._device.warp_size)[:, None]
        own = np.arange(at.vector if element.vector else 1)
        if shape.lanes_fastest:
            row, place = threads // shape.lanes, threads % shape.lanes * own.size + own
        else:
            row, place = threads % shape.rows_per_block, threads // shape.rows_per_block * own.size + own
        at_zero: dict[str, Any] = {v.name: 0 for v in element.at.variables()}
        size = ELEMENT_TYPES[element.dtype].numpy.itemsize
        addresses = np.unique(element.at.evaluate({**at_zero, ROW: row, PLACE: np.minimum(place, at.size - 1)}))
        pieces = [np.unique(addresses * size // piece).size * piece for piece in (SECTOR, LINE)]
        sectors, lines = (min(1.0, addresses.size * size / piece) for piece in pieces)
        return sectors, lines

    def _read(self, name: str, address: Expr, at: Around) -> None:
        """Note how many elements of an input an access goes over, at the most."""
        names = {v.name for v in address.variables()}
        symbols = names - _ROWS - _PLACES - self.counters
        rows = self._layout.rows if names & _ROWS or symbols else 1
        places = at.size * at.share * at.repeated if names - _ROWS else 1
        self.stage.elements[name] = self.stage.elements.get(name, 0.0) + rows * places
        if names & _ROWS and names - _ROWS:
            self.stage.own.add(name)

    def combine(self, name: str, times: float) -> None:
        """Count one more element taken in."""
        combiner = self._combiners[name]
        self.operations((*combiner.body, *combiner.results), times)
        self.work[COMBINE] += times * len(combiner.dtypes)

    def operations(self, made: Sequence[Any], times: float) -> None:
        for root in made:
            for node in nodes(root):
                if isinstance(node, Op):
                    self._instructions(node, times)

    def times(self, at: Around, depth: Depth) -> float:
        """Return how often something is done that differs between rows, or places, as far as ``depth`` says: a compiler
        takes what all rows have alike out of the loop over neighbouring rows.
        """
        inside = at.of_rows and not self._layout.lanes_fastest and BY_ROW not in depth
        return at.alike if inside and self._vectors else at.times


def _is_straight(address: Expr, inner: str, lanes: int, each: int) -> bool:
    """Return whether the threads of a warp access neighbours, in one piece, of ``each`` elements for a thread."""
    for atom, c in address.terms:
        if isinstance(atom, Mod) and c == each and inner in {v.name for v in atom.of.variables()}:
            return atom.by % lanes == 0 and _is_straight(atom.of, inner, lanes, 1)
    if each == 1:
        return is_unit_stride(address, inner)
    return any(isinstance(atom, Var) and atom.name == inner and c == each for atom, c in address.terms)


def _is_interleaved(address: Expr, run: int) -> bool:
    """Return whether rows lie between each other's runs of places, so that the places of neighbouring rows are
    neighbours.
    """
    steps = {atom.name: c for atom, c in address.terms if isinstance(atom, Var)}
    return run > 1 and steps.get(PLACE) == 1 and steps.get(ROW) == run
