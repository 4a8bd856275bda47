"""The scheduled kernel: how each pattern's work is split over blocks, rows and lanes, and where cached values live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from math import ceil, prod
from typing import TYPE_CHECKING

from msgspec import Struct

from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.schedule.team import Team

if TYPE_CHECKING:
    from jax_stitch.schedule.template import Template


class Order(Enum):
    """The thread coordinate of a block that varies fastest, chosen so that neighbours in a warp read neighbours in
    memory.
    """

    LANES = "lanes"
    ROWS = "rows"


class Split(Struct, frozen=True):
    """The split of ``rows`` rows over ``blocks`` blocks of ``rows_per_block`` x ``lanes`` threads; a block takes
    ``sequence`` groups of rows in turn. With ``cluster`` above 1, a cluster of so many blocks has the lanes of one row.
    """

    rows: int
    period: int
    """No group of rows crosses a multiple of it: the end of a dimension that the rows run along (all rows where that
    does not matter).
    """
    rows_per_block: int
    lanes: int
    order: Order
    sequence: int
    blocks: int
    cluster: int = 1
    """Neighbouring blocks of a launch that take a row together, with access to each other's shared memory."""
    row_vector: int = 1
    """Neighbouring rows per thread."""

    @property
    def threads(self) -> int:
        """Return the threads of a block of the launch."""
        return self.rows_per_block * self.lanes // (self.cluster * self.row_vector)

    def per_lane(self, size: int) -> int:
        """Return the most of ``size`` places of a row that a lane has."""
        return ceil(size / self.lanes)

    def own_places(self, size: int) -> int:
        """Return the elements that a block caches of a value that threads cache at their own of ``size`` places."""
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
"""The most shares of a reduction that one lane combines serially; more are combined in groups first."""

SUM_BLOCK = 32
"""Elements that one accumulator adds serially, as one block of a sum, where a thread reduces many."""


class StorageKind(Enum):
    """The place where a value cached inside the kernel lives."""

    ROW = "one register per row"
    SHARED = "shared memory, one array per row"
    CARRIED = "registers of the thread that has the row, one for each place"
    REGISTERS = "registers of the thread that computed it"
    OWN_SHARED = "shared memory, read only by the thread that computed it"


class Storage(Struct, frozen=True):
    """A cached value: ``size`` elements per row. ``offset`` is in bytes from the start of the part's shared memory, if
    it lives there.
    """

    node: int
    kind: StorageKind
    type: TensorType
    size: int
    offset: int = 0
    index: Index = ()
    """For values cached at a thread's own place: the index of the cached elements."""


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
    """Elements that the pass reads from the cache of an earlier pass."""
    scans: tuple[int, ...] = ()
    """Scans that the pass computes. With any, the lanes go along the row in order, in batches of ``batch`` places
    each.
    """
    backward: bool = False
    """True if the pass goes from the last place to the first."""
    batch: int = 1
    breaks: tuple[int, ...] = ()
    """The places in a run where conditions on the place change (concatenate, pad): each stretch between them is a loop
    of its own, without branches.
    """
    keeps: tuple[int, ...] = ()
    """Values that the pass computes for later passes to read at any place (``schedule/kept.py``)."""


def largest_divisor(of: int, most: int) -> int:
    """Return the largest divisor of ``of`` that is at most ``most``."""
    return max((n for n in range(1, min(of, most) + 1) if of % n == 0), default=1)


BANKS = 32
"""Banks of shared memory, four bytes each."""


class InnerReducePass(Struct, frozen=True):
    """An inner reduction, which leaves several places of a row: lanes go over ``size`` places, each reducing
    ``reduced`` elements serially. Where several lanes share the elements of a place, ``size`` counts ``shares`` for
    each remaining place: all places of the first share, then of the second; a lane takes ``vector`` neighbours of them
    at a time. With ``neighbours`` the order is all shares of the first place, then of the second. With ``along`` lanes
    go along the reduced elements: ``size`` counts these, and ``reduced`` the remaining places, one after the other.
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
        """Return all reductions of the pass."""
        return self.reduce, *self.beside

    @property
    def left(self) -> int:
        """Return the number of places of a row that the reduction leaves."""
        return prod(self.reduced) if self.along else self.size // self.shares

    @property
    def groups(self) -> int:
        """Return the number of groups in which shares are combined first; 1 where there are none."""
        return 1 if self.shares <= TOGETHER else largest_divisor(self.shares, TOGETHER)

    @property
    def share_stride(self) -> int:
        """Return the distance in shared memory between the shares of a lane's neighbouring places, in elements. It
        avoids bank conflicts between lanes, at vectors as well as at neighbouring places.
        """
        each = self.size // self.vector
        return each + (BANKS // self.vector - each) % BANKS if self.vector > 1 else each

    @property
    def share_places(self) -> int:
        """Return the elements of shared memory that the shares of a row take."""
        return (self.vector - 1) * self.share_stride + self.size // self.vector

    @property
    def in_blocks(self) -> bool:
        """Return whether blocks of ``SUM_BLOCK`` elements are reduced separately first, for accuracy.

        The results of the blocks follow the reduction's own in shared memory.
        """
        return not self.along and prod(self.reduced) > SUM_BLOCK and (self.shares == 1 or self.neighbours)

    @property
    def arrays_beside(self) -> int:
        """Return the number of arrays of all lanes' places after the reduction's own: of blocks, and of shares."""
        return self.in_blocks + self.neighbours


class SortPass(Struct, frozen=True):
    """A sort along the row's ``size`` places; only the ``first`` results of it are read. Its keys are computed place by
    place and cached in shared memory, where the row's lanes sort them.
    """

    sort: int
    size: int
    first: int


RowPass = OncePass | LoopPass | InnerReducePass | SortPass


class Mailbox(Struct, frozen=True):
    """A region of each block's shared memory, ``offset`` bytes from its start, that the blocks of a cluster write to:
    two slots of ``size`` bytes for each of them.
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
    """Bytes at the start of the shared memory that block reductions use."""
    mailbox: Mailbox | None = field(default=None, kw_only=True)
    """The mailbox by which the blocks of a cluster exchange results of reductions, where a cluster takes each row."""
    composition: tuple[str, ...]
    periods: Mapping[int, int]
    """The length of the runs in which loops over a number of places go, by that number, where not in a single run."""
    wide: bool = False
    """True if positions in some buffer need 64 bits."""
    team: Team | None = None
    """The schedule of a loop that teams of threads run; None for other parts."""
    vectors: Mapping[int, int] = field(default_factory=dict)
    """The neighbours that a lane takes at a time in passes over a number of places, by that number, where above one."""
    sum_block: int = SUM_BLOCK
    """Elements that an accumulator adds serially, and blocks that an accumulator of blocks adds, for accuracy."""
    ahead: bool = False
    """True if passes prefetch the rows of the next place while they work on one: each block reads only a piece of every
    line of memory, a pattern that a CPU does not predict.
    """

    @property
    def blocks(self) -> int:
        """Return the blocks of a launch that work on the part. On a CPU, where no block waits, they are the split's."""
        return self.split.blocks * self.split.cluster * (1 if self.team is None else self.team.loop.blocks)

    @property
    def spread(self) -> bool:
        """Return whether all blocks of a launch work on the part together."""
        return self.team is not None and self.team.loop.blocks > 1

    def per_lane(self, size: int) -> int:
        """Return the most of ``size`` places of a row that a lane has, in whole vectors."""
        vector = self.vectors.get(size, 1)
        return ceil(size / (self.split.lanes * vector)) * vector

    @property
    def caches(self) -> bool:
        """Return whether values are cached in shared memory, apart from those of reductions."""
        return any(
            s.kind in (StorageKind.SHARED, StorageKind.OWN_SHARED)
            for s in (*self.storage.values(), *self.own_storage.values())
        )


class Residency(Struct, frozen=True):
    """The limits of a launch whose blocks wait for each other, so that all of them have to be resident together."""

    blocks: int
    """The most blocks of a launch."""
    per_multiprocessor: int
    """Blocks that share a multiprocessor, which limits the registers of a thread."""
    last_block_from: int
    """The first phase so small that the last block to arrive at the barrier before it runs all later phases; the number
    of phases where there is none.
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
    """Schedules that the user prescribed for parts."""
    residency: Residency | None = None
    """The limits of a launch with several phases, or with blocks that wait for each other in one; None for others."""
    together: int | None = None
    """Blocks per multiprocessor for which a thread's registers have to leave room. None leaves it to the compiler; a
    ``residency`` takes precedence.
    """
    rows_are_loops: bool = field(default=False, kw_only=True)
    """True if a thread goes through the rows of a block in loops, as on a CPU."""

    @property
    def phases(self) -> tuple[tuple[Part, ...], ...]:
        """Return the parts of each phase: those between two barriers of all blocks."""
        return tuple(tuple(group) for _, group in groupby(self.parts, lambda p: p.pattern.phase))

    @property
    def inputs(self) -> tuple[int, ...]:
        """Return the ids of the values that are read and not written before by the kernel itself, ascending."""
        return tuple(sorted({i for p in self.parts for i in p.pattern.inputs} - self.crossing))

    @property
    def outputs(self) -> tuple[int, ...]:
        """Return the ids of all values that are written, ascending."""
        return tuple(sorted({i for p in self.parts for i in p.pattern.outputs}))

    @property
    def crossing(self) -> frozenset[int]:
        """Return the ids of the values that one phase writes and a later one reads."""
        written = {i: p.pattern.phase for p in self.parts for i in p.pattern.outputs}
        read = ((i, p.pattern.phase) for p in self.parts for i in p.pattern.inputs)
        return frozenset(i for i, phase in read if i in written and written[i] < phase)

    @property
    def bytes_read(self) -> int:
        """Return the bytes of device memory read, each value once per phase."""
        return sum(
            node_bytes(self.graph[i]) for phase in self.phases for i in {i for p in phase for i in p.pattern.inputs}
        )

    @property
    def bytes_written(self) -> int:
        """Return the bytes of device memory written."""
        return sum(node_bytes(self.graph[i]) for i in self.outputs)

    @property
    def threads(self) -> int:
        return self.parts[0].split.threads

    @property
    def blocks(self) -> int:
        """Return the blocks of a launch."""
        most = max(sum(p.blocks for p in phase) for phase in self.phases)
        return min(most, self.residency.blocks) if self.residency else most

    @property
    def cluster(self) -> int:
        """Return the blocks of each of the launch's clusters."""
        return max(p.split.cluster for p in self.parts)

    @property
    def shared_bytes(self) -> int:
        return max(p.shared_bytes for p in self.parts)

    @property
    def composition(self) -> tuple[str, ...]:
        """Return the composition schemes used, of "packing", "thread", "warp", "block", "cluster", "grid"."""
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
