"""A scheduled kernel: how each pattern's work is laid over blocks, rows and lanes, and where cached values live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from math import ceil, prod
from typing import TYPE_CHECKING

from msgspec import Struct

from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.pattern import Pattern
from jax_stitch.schedule.team import Team

if TYPE_CHECKING:
    from jax_stitch.schedule.template import Template


class Order(Enum):
    """Which of a block's two thread coordinates runs fastest, so that neighbours in a warp read neighbours in
    memory.
    """

    LANES = "lanes"
    ROWS = "rows"


class Split(Struct, frozen=True):
    """``rows`` rows over ``blocks`` blocks of ``rows_per_block`` x ``lanes`` threads; a block does ``sequence`` groups
    of rows in turn. With ``cluster`` above 1, it is a cluster of as many blocks that has those lanes, of one row.
    """

    rows: int
    period: int
    """No group of rows goes across a multiple of it: where a dimension ends that the rows run along (all rows where
    that does not matter).
    """
    rows_per_block: int
    lanes: int
    order: Order
    sequence: int
    blocks: int
    cluster: int = 1
    """Blocks of a launch that take a row together: neighbours, which reach each other's shared memory."""
    row_vector: int = 1
    """Neighbouring rows that one thread has."""

    @property
    def threads(self) -> int:
        """Of a block of the launch."""
        return self.rows_per_block * self.lanes // (self.cluster * self.row_vector)

    def per_lane(self, size: int) -> int:
        """How many of ``size`` places of a row a lane has at most."""
        return ceil(size / self.lanes)

    def own_places(self, size: int) -> int:
        """How many elements a block caches of what each thread caches at its own of ``size`` places of a row."""
        if self.cluster == 1:
            return self.rows_per_block * size
        return ceil(size / self.lanes) * self.threads

    def __str__(self) -> str:
        turns = f" x {self.sequence} in turn" if self.sequence > 1 else ""
        if self.cluster > 1:
            each = f"a row x {self.lanes} lanes"
            return f"{self.blocks} clusters of {self.cluster} blocks of {each}{turns}, {self.order.value} fastest"
        rows = f"{self.rows_per_block} rows"
        if self.row_vector > 1:
            rows += f", {self.row_vector} a thread,"
        block = f"{rows} x {self.lanes} lanes"
        return f"{self.blocks} blocks of {block}{turns}, {self.order.value} fastest"


TOGETHER = 32
"""Shares of a reduction that one lane combines in turn; of more, groups are combined first."""

SUM_BLOCK = 32
"""Elements of a block of a sum: what one accumulator takes in turn, where a thread reduces many."""


class StorageKind(Enum):
    """Where a value cached inside the kernel lives."""

    ROW = "one register per row"
    SHARED = "shared memory, one array per row"
    CARRIED = "registers of the thread that has the row, one for each place"
    REGISTERS = "registers of the thread that computed it"
    OWN_SHARED = "shared memory, read only by the thread that computed it"


class Storage(Struct, frozen=True):
    """A cached value: ``size`` elements per row; ``offset`` in bytes from the start of the part's shared memory (where
    it lives there).
    """

    node: int
    kind: StorageKind
    type: TensorType
    size: int
    offset: int = 0
    index: Index = ()
    """For values cached at a thread's own place: the index they are cached for."""


class OncePass(Struct, frozen=True):
    """Values of a whole row, computed once per row: cached, written to memory, or added to partial results."""

    caches: tuple[int, ...]
    writes: tuple[int, ...]
    partials: tuple[int, ...]


class LoopPass(Struct, frozen=True):
    """One pass of the lanes over ``size`` places of the row. Its reductions are complete when it ends."""

    size: int
    reduces: tuple[int, ...]
    writes: tuple[int, ...]
    partials: tuple[int, ...]
    caches: tuple[tuple[int, Index], ...] = ()
    uses: tuple[tuple[int, Index], ...] = ()
    """Elements read from where an earlier pass cached them."""
    scans: tuple[int, ...] = ()
    """Scans that the pass goes through. With any, the lanes go along the row in order, in batches of ``batch`` places
    each.
    """
    backward: bool = False
    """From the last place to the first."""
    batch: int = 1
    breaks: tuple[int, ...] = ()
    """Where in a run of places conditions on the place change (concatenate, pad): each stretch is a loop of its own,
    with nothing left to decide.
    """
    keeps: tuple[int, ...] = ()
    """Values that the pass computes for later ones to read at any place (``schedule/kept.py``)."""


def largest_divisor(of: int, most: int) -> int:
    """The largest divisor of a number that is no larger than another."""
    return max((n for n in range(1, min(of, most) + 1) if of % n == 0), default=1)


BANKS = 32
"""Of shared memory, four bytes each."""


class InnerReducePass(Struct, frozen=True):
    """An inner reduction, which leaves several places of a row: lanes over ``size`` places, each reducing ``reduced``
    elements in turn. Where several lanes share out the elements of each, ``size`` counts all their places,
    ``shares`` of each that the reduction leaves: those of the first share, then of the second; a lane then has
    ``vector`` neighbours of them at a time. Where the shares of a place are ``neighbours``, they are those of the first
    place, then of the second. Where lanes go ``along`` what is reduced, ``size`` counts that, and ``reduced`` the
    places that are left, one after the other.
    """

    reduce: int
    size: int
    reduced: tuple[int, ...]
    shares: int = 1
    along: bool = False
    vector: int = 1
    neighbours: bool = False
    beside: tuple[int, ...] = ()
    """Other reductions of the same places over the same dimensions (``schedule/beside.py``)."""

    @property
    def reduces(self) -> tuple[int, ...]:
        """All reductions of the pass."""
        return self.reduce, *self.beside

    @property
    def left(self) -> int:
        """Places of a row that the reduction leaves."""
        return prod(self.reduced) if self.along else self.size // self.shares

    @property
    def groups(self) -> int:
        """In how many groups shares are combined first; 1 where in none."""
        return 1 if self.shares <= TOGETHER else largest_divisor(self.shares, TOGETHER)

    @property
    def share_stride(self) -> int:
        """How far apart the shares of a lane's neighbouring places lie in shared memory: each has the banks that it
        needs of those of as many lanes for itself, whether lanes are at vectors or at neighbouring places.
        """
        each = self.size // self.vector
        return each + (BANKS // self.vector - each) % BANKS if self.vector > 1 else each

    @property
    def share_places(self) -> int:
        """Elements of shared memory that the shares of a row take."""
        return (self.vector - 1) * self.share_stride + self.size // self.vector

    @property
    def in_blocks(self) -> bool:
        """Whether the elements are so many that blocks of ``SUM_BLOCK`` are reduced by themselves first, for accuracy.

        The blocks' results stand in shared memory behind the reduction's own.
        """
        return not self.along and prod(self.reduced) > SUM_BLOCK and (self.shares == 1 or self.neighbours)

    @property
    def arrays_beside(self) -> int:
        """How many arrays of all lanes' places stand behind a reduction's own: of its blocks, and of shares."""
        return self.in_blocks + self.neighbours


class SortPass(Struct, frozen=True):
    """A sort along the row's ``size`` places, of whose results ``first`` are read: its keys are computed place by place
    and cached in shared memory, where the row's lanes put them in order.
    """

    sort: int
    size: int
    first: int


RowPass = OncePass | LoopPass | InnerReducePass | SortPass


class Mailbox(Struct, frozen=True):
    """A piece of each block's shared memory, ``offset`` bytes from its start, that the blocks of a cluster write to:
    two places for each of them, of ``size`` bytes.
    """

    offset: int
    size: int


@dataclass(frozen=True, eq=False)
class Part:
    """One pattern's share of a kernel."""

    pattern: Pattern
    split: Split
    passes: tuple[RowPass, ...]
    storage: Mapping[int, Storage]
    own_storage: Mapping[tuple[int, Index], Storage]
    """Values cached at a thread's own place, by node and index."""
    shared_bytes: int
    reduction_bytes: int
    """The first bytes of the shared memory, used by block reductions."""
    mailbox: Mailbox | None = field(default=None, kw_only=True)
    """Where a cluster takes each row: by what its blocks hand each other results of reductions."""
    composition: tuple[str, ...]
    periods: Mapping[int, int]
    """By number of places: the runs in which loops over as many places go, where not in one."""
    wide: bool = False
    """Whether positions in some buffer need 64 bits."""
    team: Team | None = None
    """Where the part is a loop that teams of threads run."""
    vectors: Mapping[int, int] = field(default_factory=dict)
    """By number of places: how many neighbours a lane takes at a time in passes over as many, where more than one."""
    sum_block: int = SUM_BLOCK
    """Elements that an accumulator of a pass takes in turn, and blocks that one of blocks takes, for accuracy."""
    ahead: bool = False
    """Whether passes ask for the rows of the next place while they work on those of one: blocks that have a piece of
    each line of memory, which a CPU does not foresee.
    """

    @property
    def blocks(self) -> int:
        """Blocks of a launch that work on the part; on a CPU, where no block waits for another, ``split`` has them."""
        return self.split.blocks * self.split.cluster * (1 if self.team is None else self.team.loop.blocks)

    @property
    def spread(self) -> bool:
        """Whether all blocks of a launch work on the part together."""
        return self.team is not None and self.team.loop.blocks > 1

    def per_lane(self, size: int) -> int:
        """How many of ``size`` places of a row a lane has at most, in whole vectors."""
        vector = self.vectors.get(size, 1)
        return ceil(size / (self.split.lanes * vector)) * vector

    @property
    def caches(self) -> bool:
        """Whether results are cached in shared memory, beside what reductions need."""
        return any(
            s.kind in (StorageKind.SHARED, StorageKind.OWN_SHARED)
            for s in (*self.storage.values(), *self.own_storage.values())
        )


class Residency(Struct, frozen=True):
    """How a launch of several phases fits the device: its blocks wait for each other, so all of them run together."""

    blocks: int
    """The most blocks of a launch."""
    per_multiprocessor: int
    """Those that share a multiprocessor: what the registers of a thread have to leave room for."""
    last_block_from: int
    """The first phase that is so small that the block that arrives last at the barrier before it does the rest;
    the number of phases where there is none.
    """


@dataclass(frozen=True, eq=False)
class ScheduledKernel:
    """The parts of one launch, in the order of their phases; in a phase (more than one part: kernel packing) part ``k``
    runs on the next ``parts[k].split.blocks`` blocks.
    """

    name: str
    graph: Graph
    parts: tuple[Part, ...]
    asked: tuple[Template, ...] = field(default=(), kw_only=True)
    """Schedules that parts were told to have."""
    residency: Residency | None = None
    """Where there are several phases, or blocks that wait for each other in one."""
    together: int | None = None
    """How many blocks on a multiprocessor a thread's registers have to leave room for; None is the compiler's choice,
    and where there is a ``residency`` that says it.
    """
    rows_are_loops: bool = field(default=False, kw_only=True)
    """Whether a thread goes through the rows of a block in loops, as a CPU's does."""

    @property
    def phases(self) -> tuple[tuple[Part, ...], ...]:
        """The parts between two barriers of all blocks."""
        return tuple(tuple(group) for _, group in groupby(self.parts, lambda p: p.pattern.phase))

    @property
    def inputs(self) -> tuple[int, ...]:
        """What is read and not written before by the kernel itself, by id."""
        return tuple(sorted({i for p in self.parts for i in p.pattern.inputs} - self.crossing))

    @property
    def outputs(self) -> tuple[int, ...]:
        """All that is written, by id."""
        return tuple(sorted({i for p in self.parts for i in p.pattern.outputs}))

    @property
    def crossing(self) -> frozenset[int]:
        """What one phase writes and a later one reads."""
        written = {i: p.pattern.phase for p in self.parts for i in p.pattern.outputs}
        read = ((i, p.pattern.phase) for p in self.parts for i in p.pattern.inputs)
        return frozenset(i for i, phase in read if i in written and written[i] < phase)

    @property
    def bytes_read(self) -> int:
        """Device memory read, each value once per phase."""
        return sum(
            node_bytes(self.graph[i]) for phase in self.phases for i in {i for p in phase for i in p.pattern.inputs}
        )

    @property
    def bytes_written(self) -> int:
        """Device memory written."""
        return sum(node_bytes(self.graph[i]) for i in self.outputs)

    @property
    def threads(self) -> int:
        return self.parts[0].split.threads

    @property
    def blocks(self) -> int:
        """Of a launch."""
        most = max(sum(p.blocks for p in phase) for phase in self.phases)
        return min(most, self.residency.blocks) if self.residency else most

    @property
    def cluster(self) -> int:
        """Blocks of the clusters that the launch is made of."""
        return max(p.split.cluster for p in self.parts)

    @property
    def shared_bytes(self) -> int:
        return max(p.shared_bytes for p in self.parts)

    @property
    def composition(self) -> tuple[str, ...]:
        """The composition schemes used, of "packing", "thread", "warp", "block", "cluster", "grid"."""
        schemes = {c for p in self.parts for c in p.composition}
        if any(len(phase) > 1 for phase in self.phases):
            schemes.add("packing")
        if len(self.phases) > 1:
            schemes.add("grid")
        return tuple(c for c in ("packing", "thread", "warp", "block", "cluster", "grid") if c in schemes)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.blocks} blocks of {self.threads} threads, {self.shared_bytes} bytes of shared memory"
        ]
        for p in self.parts:
            lines.append(f"  {p.split}; {', '.join(p.composition)} composition; {len(p.passes)} passes")
        return "\n".join(lines)
