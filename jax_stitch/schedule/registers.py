"""How many registers a thread needs, from the life times of its values, before any compiler has seen the kernel (2021
paper, section 4.3: the latency-evaluator's occupancy is estimated from it).

Two scans. Over the passes of a part: what is cached in registers lives from the pass that makes it to the last one that
uses it. And in each pass over its elements, in the order in which they are computed: each lives to its last use.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import ceil, prod

from jax_stitch.analysis.accesses import PARTIAL, Element, Walk, accesses
from jax_stitch.analysis.binding import inner_sizes
from jax_stitch.analysis.maps import MOVES
from jax_stitch.analysis.patterns.nest import Nest
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.indices.variables import PLACE, RUN, row_index
from jax_stitch.schedule.model import (
    InnerReducePass,
    LoopPass,
    OncePass,
    Order,
    Part,
    RowPass,
    ScheduledKernel,
    SortPass,
    StorageKind,
)
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.walks import reduced_operands, walk_pass

MOST = 255
"""That an instruction can name."""

FIXED = 12
"""Of every kernel: the thread's place in block, row and loops, and what an instruction needs on its way."""

ADDRESS = 2
"""Of a pointer."""

TURNS = 8
"""Of a loop that is not written out, those whose loads a compiler has under way together."""

TURNS_OF_ROWS = 4
"""Of a loop over places at each of which a thread reads vectors of rows."""

SEQUENCE, PHASES = 6, 8
"""Of a block that does several groups of rows in turn, or several phases of a grid."""

TEAM = 40
"""Of a thread of a team, whose values stand in shared memory."""

_WIDE = frozenset({"f64", "s64", "u64"})


def registers(kernel: ScheduledKernel, device: Device) -> int:
    """Return the 32-bit registers that a thread of a GPU's ``kernel`` is estimated to need: no more than its blocks
    leave.

    What it cannot do without; and for loads under way together, as far as a thread has registers for them while the
    multiprocessor is full, or in the number of blocks that is asked for.
    """
    together = kernel.residency.per_multiprocessor if kernel.residency else kernel.together
    left = device.registers_per_multiprocessor // (kernel.threads * (together or 1)) // 8 * 8
    full = device.registers_per_multiprocessor // device.threads_per_multiprocessor
    aim = left if together else min(left, full)
    needs = [_of_part(kernel.graph, part) for part in kernel.parts]
    around = PHASES if len(kernel.phases) > 1 else 0
    estimate = max(max(least, min(wanted, aim)) for least, wanted in needs) + around
    return max(16, min(estimate, left, MOST))


def _of_part(graph: Graph, part: Part) -> tuple[int, int]:
    """Return the registers that a part needs at least, and those it has a use for."""
    if part.team is not None:
        return TEAM, TEAM
    if isinstance(part.pattern.loop, Nest):
        needed = FIXED + _of_nest(part.pattern.loop)
        return needed, needed
    fixed = FIXED + (SEQUENCE if part.split.sequence > 1 else 0)
    pressure = _Pressure(graph, part)
    return fixed + pressure.most(False), fixed + pressure.most(True)


class _Pressure:
    """The registers that the values of a part take at a time."""

    def __init__(self, graph: Graph, part: Part):
        self._graph, self._part, self._split = graph, part, part.split
        self._shape = PatternView(graph, part.pattern, row_index(part.split.rows, part.split.period), part.periods)
        cached = frozenset(part.storage)
        self._walks = [
            walk_pass(self._shape, s, cached, s.uses if isinstance(s, LoopPass) else ()) for s in part.passes
        ]

    def most(self, ahead: bool) -> int:
        """Return the most registers over all passes; with what is loaded ``ahead``, or element by element."""
        lives = [*self._own(), *self._of_rows()]
        return max(
            sum(words for first, last, words in lives if first <= k <= last) + self._inside(row_pass, walk, ahead)
            for k, (row_pass, walk) in enumerate(zip(self._part.passes, self._walks, strict=True))
        )

    def _own(self) -> Iterator[tuple[int, int, int]]:
        """Yield first and last pass, and registers, of what threads cache at their own places; partial results live as
        long as the part.
        """
        loops = [(k, s) for k, s in enumerate(self._part.passes) if isinstance(s, LoopPass)]
        for element, storage in self._part.own_storage.items():
            if storage.kind is StorageKind.REGISTERS:
                where = [k for k, s in loops if element in s.caches or element in s.uses]
                made = any(element in s.caches for _, s in loops)
                first, last = (min(where), max(where)) if made else (0, len(self._part.passes))
                each = self._part.per_lane(storage.size) * self._split.row_vector
                yield first, last, _words(storage.type) * each

    def _of_rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield the same of values that a row has one of: from the pass after the one that makes them to the last
        reader.
        """
        for i, storage in self._part.storage.items():
            if storage.kind in (StorageKind.ROW, StorageKind.CARRIED):
                used = [k for k, w in enumerate(self._walks) if any(e[0] == i for e in w.cached)]
                made = next((k for k, s in enumerate(self._part.passes) if i in _made(self._graph, s)), 0)
                yield made + 1, max(used, default=0), _words(storage.type) * storage.size * self._split.row_vector

    def _inside(self, row_pass: RowPass, walk: Walk, ahead: bool) -> int:
        """Return the most that a pass's own values take: accumulators, addresses, and a scan over its elements."""
        graph = self._graph
        sums, writes = 0, tuple[int, ...]()
        if isinstance(row_pass, SortPass):
            # Two elements of a thread's own and one of another's, and as much again to compare them.
            sums = 6 * sum(_words(graph[o].tensor) for o in graph[row_pass.sort].operands)
        elif not isinstance(row_pass, InnerReducePass):
            accumulators = (
                2 if isinstance(row_pass, LoopPass) and row_pass.size > self._part.sum_block * self._split.lanes else 1
            )
            reduced = row_pass.reduces if isinstance(row_pass, LoopPass) else row_pass.partials
            sums = accumulators * sum(_words(graph[o].tensor) for i in reduced for o in reduced_operands(graph, i))
            sums *= self._split.row_vector
            writes = row_pass.writes
        addresses = ADDRESS * len({i for i, _ in walk.loaded} | set(writes))
        return sums + addresses + self._scanned(row_pass, walk, ahead)

    def _scanned(self, row_pass: RowPass, walk: Walk, ahead: bool) -> int:
        """Return a linear scan: an element is live from where it is computed to where it is last read. What is loaded,
        for all the trips that a compiler starts together; what does not depend on the place comes before the loop over
        places, and is live throughout that where it is read there.
        """
        graph = self._graph
        order = [
            *walk.loaded,
            *sorted((e for e in walk.computed if not is_rematerializable(graph[e[0]])), key=lambda e: e[0]),
        ]
        order.sort(key=self._by_place)
        end = len(order)
        first: dict[Element, int] = {}
        last: dict[Element, int] = {}
        for at, element in enumerate(order):
            i, _ = element
            if (
                i in self._part.pattern.inside
                and i not in self._part.storage
                and graph[i].op not in ("reduce", "sort", PARTIAL)
            ):
                for read in accesses(graph).reads(element):
                    operand = graph[i].operands[read.operand], read.index
                    first.setdefault(operand, at)
                    last[operand] = end if self._by_place(element) and not self._by_place(operand) else at
        trips, vector = (self._trips(row_pass), self._vector(row_pass)) if ahead else (1, 1)
        trips *= self._split.row_vector
        change = [0] * (end + 2)
        for at, element in enumerate(order):
            is_load, by_place = element in walk.loaded, self._by_place(element)
            if (is_load or element in last) and graph[element[0]].op not in MOVES:
                words = _words(graph[element[0]].tensor) * ((trips if is_load else vector) if by_place else 1)
                # Read where it is first needed, unless ahead of that.
                change[first.get(element, at) if is_load and not ahead else at] += words
                change[last.get(element, end) + 1] -= words
        return max(accumulate(change))

    def _trips(self, row_pass: RowPass) -> int:
        """Return elements of a load that are under way together in a thread."""
        if not isinstance(row_pass, LoopPass):
            return 1
        per_thread = ceil(row_pass.size / self._split.lanes)
        cached = any(
            self._part.own_storage[e].kind is StorageKind.REGISTERS for e in (*row_pass.caches, *row_pass.uses)
        )
        most = TURNS if self._split.row_vector == 1 else TURNS_OF_ROWS
        return per_thread if cached else min(per_thread, max(most, self._vector(row_pass)))

    def _vector(self, row_pass: RowPass) -> int:
        return self._part.vectors.get(row_pass.size, 1) if isinstance(row_pass, LoopPass) else 1

    def _by_place(self, element: Element) -> bool:
        names = {v.name for e in element[1] for v in e.variables()}
        return bool(names & {PLACE, RUN}) or self._split.order is Order.ROWS


def _of_nest(nest: Nest) -> int:
    """Return the registers of a loop in threads: of what it carries, and of a scan over the values of one iteration in
    the order of its graph.
    """
    graph = nest.graph
    carried = {c.parameter for nested in nest.loops for c in nested.carried}
    body = [n for n in graph.nodes if n.id >= min(carried, default=0) and n.id not in carried]
    last = {o: n.id for n in body for o in n.operands}
    change = [0] * (len(graph) + 1)
    for node in body:
        if (
            node.id in last
            and isinstance(node.type, TensorType)
            and not is_rematerializable(node)
            and node.op not in MOVES
        ):
            words = _words(node.type) * max(1, node.type.size // nest.rows)
            change[node.id] += words
            change[last[node.id] + 1] -= words
    around = sum(_words(graph[i].tensor) * prod(inner_sizes(nest.bindings[i])) for i in carried)
    return around + max(accumulate(change))


def _made(graph: Graph, row_pass: RowPass) -> set[int]:
    """Return what a pass makes for the whole row."""
    if isinstance(row_pass, OncePass):
        return set(row_pass.caches)
    if isinstance(row_pass, SortPass):
        return {row_pass.sort, *graph.users[row_pass.sort]}
    return {i for r in row_pass.reduces for i in (r, *graph.users[r])}


def _words(type_: TensorType) -> int:
    return 2 if type_.dtype in _WIDE else 1
