"""What the threads of a part do, counted on its schedule: instructions by class, each element as often as it is
computed (2021 paper, section 4.3: the instruction count of the latency-evaluator).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis import Expr, linearize
from jax_stitch.analysis.expr import Mod, Var
from jax_stitch.analysis.locality import BATCH, PARTIAL, PLACE, ROW, RUN, Element, row_index
from jax_stitch.analysis.maps import MOVES, Index
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_free
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.operations import HEAVY, TABLE
from jax_stitch.schedule.model import KeptReduceStage, LoopStage, Order, Part, Place, RowStage, SortStage, Stage
from jax_stitch.schedule.split import is_unit_stride
from jax_stitch.schedule.stages import Shape
from jax_stitch.schedule.vectors import is_in_vectors
from jax_stitch.schedule.walks import reduced_operands, stored_values, walk_stage

ARITHMETIC, CONVERT, ROUND, INTEGER_DIVIDE = "arithmetic", "convert", "round", "integer-divide"
LOAD, GATHER, STORE, SCATTER, KEEP = "load", "gather", "store", "scatter", "keep"
COMBINE, TREE, SCAN, TURN, GROUP, TEAM = "combine", "tree", "scan", "turn", "group", "team"
INTERLEAVE, EXCHANGE = "interleave", "exchange"

STRUCTURE = (LOAD, GATHER, STORE, SCATTER, INTERLEAVE, KEEP, COMBINE, TREE, SCAN, EXCHANGE, TURN, GROUP, TEAM)
"""Classes of instructions that are no HLO operation. A gather or scatter is an access whose neighbours in memory are
not those of the threads; to ``interleave`` is to take apart or join rows that lie between each other; ``keep`` is an
access to what a thread or a block keeps in memory; ``combine`` adds a value to an accumulator, ``tree`` is a step of
combining the lanes' results, ``scan`` of handing a lane's on, and ``exchange`` of the blocks of a cluster handing each
other theirs; a ``turn`` is what each start of an inner loop takes,
a ``group`` what each group of rows does, and ``team`` a clock of a team's phases.
"""
CLASSES = (ARITHMETIC, CONVERT, ROUND, INTEGER_DIVIDE, *sorted(o for o in HEAVY if not TABLE[o].made_of), *STRUCTURE)
"""All classes of instructions. The rest are operations of HLO that take more than one instruction."""

ACCESSES = (LOAD, GATHER, STORE, SCATTER)
"""Those that read and write memory."""

_ROWS, _PLACES = frozenset({ROW, BATCH}), frozenset({PLACE, RUN, "q"})
_WIDE = frozenset({"f64", "s64", "u64"})
_HALF = frozenset({"f16", "bf16"})
_INTEGERS = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"})

Work = defaultdict[str, float]
"""Instructions by class, for single elements: those of all threads together. An element of 64 bits counts as two."""


def operation(graph: Graph, node: Node) -> Iterator[tuple[str, float]]:
    """The instructions that one element of a node takes, by class."""
    if not isinstance(node.type, TensorType) or node.op in ("constant", "parameter", "get-tuple-element", PARTIAL):
        return
    dtype = node.type.dtype
    weight = 2.0 if dtype in _WIDE else 1.0
    if node.op in ("concatenate", "pad"):
        yield ARITHMETIC, 2.0 * max(1, len(node.operands) - 1)
    elif node.op in MOVES or node.op in ("reduce", "reduce-window", "sort"):
        return
    elif node.op in ("divide", "remainder") and dtype in _INTEGERS:
        yield INTEGER_DIVIDE, weight
    elif node.op in HEAVY:
        for made_of in TABLE[node.op].made_of or (node.op,):
            yield made_of, weight
    elif node.op == "convert":
        source = graph[node.operands[0]].tensor.dtype
        same = {source, dtype} <= _INTEGERS or source == dtype
        yield (ARITHMETIC if same else CONVERT), max(weight, 2.0 if source in _WIDE else 1.0)
    else:
        yield ARITHMETIC, weight
    if dtype in _HALF:  # Computed in f32, then rounded.
        yield ROUND, 1.0


def combiner(node: Node) -> Iterator[tuple[str, float]]:
    """The instructions by which a reduction or scan takes in one more element, or a sort compares two."""
    graph = node.graphs["to_apply"]
    for inner in graph.nodes:
        yield from operation(graph, inner)


def part_work(graph: Graph, part: Part, device: Device) -> Work:
    """The instructions of a part in which lanes go over rows, all blocks together."""
    return _PartWork(graph, part, device).count()


@dataclass(frozen=True, slots=True)
class Reads:
    """What such a part reads, in bytes."""

    first: Mapping[int, float]
    """Of each input what is read at all: of a slice, or of rows taken from a table, no more than those."""
    again: float
    """What passes over the rows read that passes before have read."""
    between: float
    """What goes by in a row before it is read again."""


def part_reads(graph: Graph, part: Part, device: Device) -> Reads:
    """The bytes that a part in which lanes go over rows reads, for the first time and again."""
    counted = _PartWork(graph, part, device)
    counted.count()
    return Reads(counted.read, counted.again, counted.between / max(1, part.split.rows))


class _PartWork:
    def __init__(self, graph: Graph, part: Part, device: Device):
        self._graph, self._part, self._device = graph, part, device
        split = part.split
        self._shape = Shape(graph, part.pattern, row_index(split.rows, split.period), part.periods)
        self._found: Work = defaultdict(float)
        self.read: dict[int, float] = {}
        """Bytes of inputs, by the pass that reads the most of each."""
        self.again = self.between = 0.0
        self._threads = 1 if device.target.lanes_are_vectors else part.split.lanes
        """That go through the loops of a row: on a CPU one goes through all lanes'."""
        self._stretch = 1.0
        """Instructions per element over those of full warps."""
        self._run = 0
        """Places of the runs that the stage goes in; 0 for one run."""
        self._alone = False
        """Whether elements are computed one by one."""

    def count(self) -> Work:
        part, split = self._part, self._part.split
        stored = stored_values(self._shape, part.stages)
        for stage in part.stages:
            self._count(stage, stored)
        self._found[GROUP] += (
            part.blocks * split.sequence * (1 if self._device.target.lanes_are_vectors else split.threads)
        )
        self._found[EXCHANGE] += split.blocks * split.lanes * (split.cluster > 1)  # All meet before the first row.
        if part.pattern.blocks is not None:
            for stage in part.stages:
                if isinstance(stage, LoopStage):
                    self._found[STORE] += len(stage.partials) * stage.size * split.blocks
        return self._found

    def _count(self, stage: Stage, stored: Collection[int]) -> None:
        self._stretch, self._alone = self._idle(stage), False
        uses = stage.uses if isinstance(stage, LoopStage) else ()
        walk = walk_stage(self._shape, stage, stored, uses)
        cuts = stage.cuts if isinstance(stage, LoopStage) else ()
        self._run = self._part.periods.get(_innermost(stage), 0)
        if self._device.target.lanes_are_vectors and not cuts and not all(walk.loads.values()):
            # Accesses under a condition keep a host compiler from making vectors of the loop.
            self._stretch, self._alone = float(self._device.warp_size), True
        size = _places(stage)
        for element, always in walk.visited.items():
            node = self._graph[element[0]]
            # Where a pass is cut at its conditions, what is under one is computed in about one of the segments.
            share = 1.0 if always else 1.0 / (len(cuts) + 1)
            for kind, weight in operation(self._graph, node):
                self._found[kind] += share * weight * self._times(element, size)
            if is_free(node) and node.op == "iota":
                self._found[ARITHMETIC] += self._times(element, size)
        elements: dict[int, float] = defaultdict(float)
        own: set[int] = set()
        for (i, index), always in walk.loads.items():
            self._access(i, index, size, LOAD, GATHER, 1.0 if always else 1.0 / (len(cuts) + 1))
            elements[i] += self._reach(index, size)
            if self._depth(index) & _ROWS and self._depth(index) & _PLACES:
                own.add(i)
        moved = 0.0
        for i, count in elements.items():
            tensor = self._graph[i].tensor
            now = min(count, tensor.size) * node_bytes(self._graph[i]) / tensor.size
            self.again += now if i in own and i in self.read else 0.0
            self.read[i] = max(self.read.get(i, 0.0), now)
            moved += now if i in own else 0.0
        self.between = max(self.between, moved)
        for element in walk.stored:
            if self._depth(element[1]) & _PLACES and self._in_memory(element):
                self._found[KEEP] += self._times(element, size)
        self._roots(stage, size)
        self._turns(stage, size)

    def _roots(self, stage: Stage, size: int) -> None:
        rows = self._part.split.rows
        if isinstance(stage, KeptReduceStage):
            self._reduce(stage.reduce, rows * size)
            return
        if isinstance(stage, SortStage):
            self._sort(stage, rows)
            return
        for i in stage.stores:
            self._access(i, self._shape.value_elements(i)[0], size, STORE, SCATTER)
        for i in stage.partials:
            self._reduce(i, rows * size)
        if isinstance(stage, RowStage):
            return
        self._found[KEEP] += sum(map(self._in_memory, stage.keeps)) * rows * size * self._stretch
        for i in stage.reduces:
            self._reduce(i, rows * size)
            lanes = self._part.split.lanes
            if self._part.split.order is Order.LANES:
                self._found[TREE] += rows * self._threads * (lanes // self._part.split.cluster).bit_length()
            else:
                self._found[COMBINE] += rows * lanes
            self._found[EXCHANGE] += rows * lanes * (self._part.split.cluster > 1)
        for i in stage.scans:
            self._reduce(i, rows * size)
            if self._part.split.order is Order.LANES:  # Neighbours wait for each other.
                self._found[SCAN] += rows * size

    def _reduce(self, i: int, elements: float) -> None:
        node, elements = self._graph[i], elements * self._stretch
        for kind, weight in combiner(node):
            self._found[kind] += weight * elements
        self._found[COMBINE] += elements * len(reduced_operands(self._graph, i))

    def _sort(self, stage: SortStage, rows: int) -> None:
        """Merges of runs that double in length: on a GPU a network of them, in which each place is compared as often as
        a run has doubled since it began.
        """
        doublings = (stage.size - 1).bit_length()
        node = self._graph[stage.sort]
        compared = float(rows * stage.size * doublings)
        if not self._device.target.lanes_are_vectors:
            compared *= (doublings + 1) / 2
            self._found[TREE] += compared
        for kind, weight in combiner(node):
            self._found[kind] += weight * compared
        self._found[KEEP] += 2 * compared * len(node.operands)

    def _access(self, i: int, index: Index, size: int, straight: str, apart: str, share: float = 1.0) -> None:
        tensor = self._graph[i].tensor
        times = share * self._times((i, index), size)
        wide = 2.0 if tensor.dtype in _WIDE else 1.0
        address = linearize(index, tensor.dims)
        inner = self._inner(size)
        names = {v.name for v in address.variables()}
        if inner not in names and not names - _ROWS - _PLACES:
            kind, times = straight, times / self._device.warp_size  # One number for neighbouring threads.
        else:
            between = _is_interleaved(address, self._run)
            self._found[INTERLEAVE] += times if between else 0.0
            kind = straight if self._alone or between or _is_straight(address, inner, self._device.warp_size) else apart
            vector = self._part.vectors.get(size, 1)
            if vector > 1 and is_in_vectors(index, tensor.dims, vector):
                # Load-store lanes take four bytes a clock: of narrower elements several, where they come in vectors.
                wide = min(wide, ELEMENT_TYPES[tensor.dtype].numpy.itemsize / 4)
        self._found[kind] += wide * times
        if tensor.dtype in _HALF:
            self._found[ARITHMETIC] += times

    def _reach(self, index: Index, size: int) -> int:
        """How many elements an index goes over, at the most."""
        names, split = self._depth(index), self._part.split
        rows = split.rows if names & _ROWS or names - _ROWS - _PLACES else 1
        return rows * (size if names - _ROWS else 1)

    def _inner(self, size: int) -> str:
        """The variable that differs between neighbouring threads."""
        return PLACE if self._part.split.order is Order.LANES and size > 1 else ROW

    def _turns(self, stage: Stage, size: int) -> None:
        split = self._part.split
        if isinstance(stage, RowStage):
            self._found[TURN] += (
                self._part.blocks * split.sequence * (1 if self._device.target.lanes_are_vectors else split.threads)
            )
        elif split.order is Order.LANES:
            inner = _innermost(stage)
            period = self._part.periods.get(inner, inner)
            self._found[TURN] += split.rows * (size // period) * ceil(period / split.lanes) * self._threads
        else:
            turns = split.blocks * split.sequence * size
            self._found[TURN] += turns if self._device.target.lanes_are_vectors else turns * split.rows_per_block

    def _idle(self, stage: Stage) -> float:
        """Instructions per element over those of full warps: on a CPU the last vector of a loop is halved once, and the
        rest done one by one; on a GPU lanes past the end wait.
        """
        split, lanes = self._part.split, self._device.warp_size
        along = split.order is Order.LANES and not isinstance(stage, RowStage)
        if not self._device.target.lanes_are_vectors:
            size = _innermost(stage)
            return ceil(size / split.lanes) * split.lanes / size if along else 1.0
        size = min(split.rows_per_block, split.rows)
        if along:
            size = _innermost(stage)
            size = self._part.periods.get(size, size)
        rest = size % lanes
        return (size - rest + lanes * (rest // (lanes // 2) + rest % (lanes // 2))) / size

    def _in_memory(self, element: Element) -> bool:
        """Whether what is kept is not in a register: a CPU has arrays for what a GPU's threads have in theirs."""
        storage = self._part.kept.get(element) or self._part.storage.get(element[0])
        if self._device.target.lanes_are_vectors or storage is None:
            return True
        return storage.place in (Place.SHARED, Place.OWN_SHARED)

    def _depth(self, index: Index) -> frozenset[str]:
        return frozenset(v.name for e in index for v in e.variables())

    def _times(self, element: Element, size: int) -> float:
        """How many threads compute an element: once per place, per row or per block, as deep as it depends on."""
        split, names = self._part.split, self._depth(element[1])
        by_place = bool(names - _ROWS) and size > 1
        alone = self._device.warp_size  # An instruction for one element takes as long as one for a warp.
        if split.order is Order.LANES:
            if by_place:
                return split.rows * size * self._stretch
            return (
                split.rows * (alone if self._device.target.lanes_are_vectors else split.lanes)
                if names
                else split.blocks * alone
            )
        if names & _ROWS or names - _PLACES:
            return split.rows * size * self._stretch
        return split.blocks * split.sequence * alone * (size if by_place else 1)


def _is_straight(address: Expr, inner: str, lanes: int) -> bool:
    """Whether the threads of a warp access neighbours, in one piece."""
    for atom, c in address.terms:
        if isinstance(atom, Mod) and c == 1 and inner in {v.name for v in atom.of.variables()}:
            return atom.by % lanes == 0 and _is_straight(atom.of, inner, lanes)
    return is_unit_stride(address, inner)


def _is_interleaved(address: Expr, run: int) -> bool:
    """Whether rows lie between each other's runs of places, so that the places of neighbouring rows are neighbours."""
    steps = {atom.name: c for atom, c in address.terms if isinstance(atom, Var)}
    return run > 1 and steps.get(PLACE) == 1 and steps.get(ROW) == run


def _innermost(stage: Stage) -> int:
    """Places of each row that the loop over neighbours goes through."""
    if isinstance(stage, LoopStage | SortStage):
        return stage.size
    return stage.kept if isinstance(stage, KeptReduceStage) else 1


def _places(stage: Stage) -> int:
    """Elements of each row that a stage goes through."""
    if isinstance(stage, LoopStage | SortStage):
        return stage.size
    return stage.kept * prod(stage.reduced) if isinstance(stage, KeptReduceStage) else 1
