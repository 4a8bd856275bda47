"""Choosing the split of a part: threads per row, rows per block, and which of them runs fastest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from msgspec import Struct

from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.patterns.traffic import NEIGHBOURS
from jax_stitch.devices import Device
from jax_stitch.ir.indices import linearize
from jax_stitch.ir.indices.variables import PLACE, ROW
from jax_stitch.schedule.model import Order, Split
from jax_stitch.schedule.strides import is_unit_stride

CUDA_BLOCK = 256
"""Threads of a block where nothing asks for more: eight such blocks fill a multiprocessor."""

PARTIAL_BLOCK = 512
"""Threads of a block with partial results by place: two such blocks are on a multiprocessor."""


SHORT_ROW = 128
"""Places of a row that a CPU is done with before the combining of its lanes is."""

LEAST_ROWS = 32
"""Neighbouring rows of a block of a CPU, for all cores to have one: two of its cache's lines. Statistics of 64 channels
over 100,352 places take 0.87 of the time with a half of them on each of two cores, and 1.4 times as long in quarters.
"""

MUCH = 1 << 20
"""Elements from which blocks have so few rows: of fewer, one core has them all in its cache."""

TASK = 16384
"""Elements that a thread of a CPU has in one go, where there are enough: fewer do not pay for its start."""

WAVES = 2
"""Blocks for each multiprocessor that have to be left: fewer would leave it without work while they wait."""

MOST_OF_A_WARP = 1024
"""Places of a row that a warp takes alone where a block goes through many rows: it waits for no other warp. On an H200
the cross-entropy of 8,192 rows of 1,024 takes 11 us so, and 16 with four warps for each row."""

MOST_ELEMENTS = 16
"""Of a thread that takes several rows: of more, what is cached would not be in registers."""

CLUSTERS = (2, 4, 8)
"""Blocks that a row may be shared out over, where the device has clusters of so many."""

BlockShape = tuple[int, int, int]
"""The rows per block, the lanes of a row, and the blocks of the cluster that they are in."""


class Work(Struct, frozen=True):
    """What a split is chosen for: the rows of a part, and what its passes do with each."""

    rows: int
    period: int
    """Rows that are neighbours in memory, one run of them."""
    places: int
    """Of a row, at most."""
    order: Order
    blocks: int | None = None
    """Fixed where partial results have been laid out for that many."""
    threads: int | None = None
    """Of a block, fixed where the part shares a launch."""
    partial_places: int = 1
    """Of the largest partial result: above 1, each row of a block has its own, joined at the end."""
    scans: bool = False
    """Whether lanes go along the row in order."""
    sorts: bool = False
    """Whether they put it in order."""
    again: int = 0
    """Bytes of a row that several passes go through."""
    sums: int = 0
    """Partial results across rows that a block has."""
    one_lane: bool = False
    """Whether a thread of a GPU takes a row at once."""
    row_vector: int = 1
    """Neighbouring rows that a thread of a GPU could take at a time."""
    group: int = 1
    """Places of a row that lie in memory between those of neighbouring rows."""

    @property
    def with_partials(self) -> bool:
        return self.partial_places > 1


def choose(
    device: Device, work: Work, *, most_rows: int | None = None, cluster: int = 1, block_shape: BlockShape | None = None
) -> Split:
    """Return the split of the rows of ``work``.

    ``most_rows`` is how many rows a block may do at a time, ``cluster`` how many blocks are to take each row.
    ``block_shape`` leaves nothing of that to choose.
    """
    rows, period, places, order, threads = work.rows, work.period, work.places, work.order, work.threads
    with_partials, row_vector = work.with_partials, 1
    if block_shape is not None:
        rows_per_block, lanes, cluster = block_shape
    elif cluster > 1:
        own = threads or _cuda(device, rows, ceil(places / cluster), order, with_partials, None, _Rows())[1]
        rows_per_block, lanes = 1, cluster * max(own, device.warp_size)
    elif device.target.lanes_are_vectors:
        rows_per_block, lanes = _cpu(device, work)
        if work.scans and order is Order.ROWS:
            lanes = 1
    elif work.one_lane and order is Order.LANES:
        rows_per_block, lanes = threads or CUDA_BLOCK, 1
    elif work.sorts and not with_partials:
        rows_per_block, lanes = _cuda_sort(device, rows, places, threads)
    elif work.scans and not with_partials:
        rows_per_block, lanes = _cuda_scan(device, rows, places, order, threads)
    else:
        own_rows = _Rows(group=work.group)
        if order is Order.LANES and work.blocks is not None and places <= MOST_OF_A_WARP:
            own_rows = _Rows(places=MOST_OF_A_WARP // device.warp_size)
        if order is Order.ROWS:
            own_rows = _rows_at_once(device, work)
            row_vector = own_rows.at_once
        rows_per_block, lanes = _cuda(device, rows, places, order, with_partials, threads, own_rows)
    while most_rows is not None and rows_per_block > most_rows:
        rows_per_block, lanes = rows_per_block // 2, lanes * 2
        row_vector = min(row_vector, rows_per_block)
    groups = rows // period * ceil(period / rows_per_block)
    if work.blocks is not None:
        sequence = max(1, ceil(groups / work.blocks))
        return Split(rows, period, rows_per_block, lanes, order, sequence, work.blocks, cluster, row_vector)
    sequence = 1
    if device.target.lanes_are_vectors:
        # A block is a task: large enough to pay for its start, and enough of them to balance the cores.
        per_group = rows_per_block * max(places, 1)
        most = max(1, min(TASK // max(per_group, 1), groups // (8 * device.multiprocessors)))
        # Of 17 blocks, one of two cores would have an eighth more than the other.
        sequences = range(most, most // 2, -max(1, most // 32))
        sequence = min(sequences, key=lambda n: ceil(ceil(groups / n) / device.multiprocessors) * n)
    return Split(rows, period, rows_per_block, lanes, order, sequence, ceil(groups / sequence), cluster, row_vector)


def block_shapes(device: Device, work: Work, most_cluster: int = 1) -> Iterator[BlockShape]:
    """Yield the shapes of blocks that a part could have, in powers of two; ``most_cluster`` blocks at most take a row
    together. Where there are partial results by place, a block has one row at a time.
    """
    rows, places, order, threads = work.rows, work.places, work.order, work.threads
    most_lanes = _power_of_two_at_least(places, 1, 64 if device.target.lanes_are_vectors else device.threads_per_block)
    sizes = [1 << k for k in range(11)]
    for lanes in sizes:
        if lanes > most_lanes or (order is Order.LANES and lanes == 1):
            continue
        for rows_per_block in sizes:
            block = rows_per_block * lanes
            if device.target.lanes_are_vectors:
                fits = rows_per_block == 1 if order is Order.LANES else not work.scans or lanes == 1
                possible = fits and rows_per_block <= rows
            else:
                possible = 32 <= block <= device.threads_per_block and block == (threads or block)
            if possible and (rows_per_block == 1 or not work.with_partials):
                yield rows_per_block, lanes, 1
    for cluster in CLUSTERS:
        for block in sizes if cluster <= most_cluster and order is Order.LANES else ():
            if device.warp_size <= block == (threads or block) and block * cluster < 2 * places:
                yield 1, block * cluster, cluster


class _Rows(Struct, frozen=True):
    """Neighbouring rows that a thread takes at once, where they run fastest; and places of each that it has, about."""

    at_once: int = 1
    places: int = 8
    group: int = 1
    """Places of a row that lie in memory between those of neighbouring rows."""


def _rows_at_once(device: Device, work: Work) -> _Rows:
    """Return the rows and places of a thread: fewer than it could take if more would leave too few blocks for the
    multiprocessors.
    """

    def blocks(rows: _Rows) -> int:
        return ceil(work.rows / _cuda(device, work.rows, work.places, Order.ROWS, False, work.threads, rows)[0])

    enough = min(blocks(_Rows()), WAVES * device.multiprocessors)
    at_once = work.row_vector
    while at_once > 1:
        for places in (8, 4, 2, 1):
            own = _Rows(at_once, places)
            # As many elements as registers hold, and no fewer than a thread has of one row.
            fits = 8 <= places * at_once <= MOST_ELEMENTS
            if work.places <= 8:
                fits = work.places * at_once <= MOST_ELEMENTS
            if fits and work.rows % at_once == 0 and blocks(own) >= enough:
                return own
        at_once //= 2
    rows = [_Rows(1, places, work.group) for places in (8, 4, 2)]
    return next((own for own in rows if blocks(own) >= device.multiprocessors), rows[-1])


def _cuda(
    device: Device,
    rows: int,
    places: int,
    order: Order,
    with_partials: bool,
    threads: int | None,
    own: _Rows,
) -> tuple[int, int]:
    """Return rows per block and lanes per row; a thread's ``own`` where rows run fastest."""
    if order is Order.LANES:
        # Eight places of a lane keep loads in flight without spilling what is cached in registers. A block with partial
        # results besides has few neighbours on its multiprocessor: it takes more lanes.
        # A row of fewer lanes than a warp is combined in fewer steps, several rows at a time: where there are so
        # many rows that all threads have one nevertheless.
        each = ceil(places / (4 if with_partials else own.places))
        few = _power_of_two_at_least(each, 8, 32)
        least = few if places <= 32 or rows * few >= device.threads_per_multiprocessor * device.multiprocessors else 32
        lanes = _power_of_two_at_least(each, least, 1024)
        lanes = min(lanes, _power_of_two_at_least(places, 1, 1024))
        if threads is not None:
            lanes = min(lanes, threads)
            return threads // lanes, lanes
        return max(1, (PARTIAL_BLOCK if with_partials else CUDA_BLOCK) // lanes), lanes
    block = threads or CUDA_BLOCK
    if places <= 8:
        return block * own.at_once, 1
    if threads is None and rows <= 32 * 256 and places >= 256:
        # With several rows a thread has as many loads under way with half as many threads, which leaves room for a
        # second block.
        several = own.at_once > 1 and rows > _neighbours(rows, device.multiprocessors) * device.multiprocessors
        block = 512 if several else 1024
    # Of small blocks a multiprocessor needs several.
    multiprocessors = device.multiprocessors * (max(1, 1024 // block) if places >= 256 else 1)
    block *= own.at_once
    # The other threads of the block share the places of its rows.
    neighbours = max(1, _neighbours(rows * own.group, multiprocessors) // own.group)
    lanes = _power_of_two_at_least(ceil(places / own.places), 1, block // neighbours)
    return block // lanes, lanes


def _neighbours(rows: int, multiprocessors: int) -> int:
    """Return the fewest rows of a block, neighbours in memory: 32 make one transaction, and 8 still fill a sector where
    so many multiprocessors need that many blocks.
    """
    neighbours = 32
    while neighbours > 8 and rows < neighbours * multiprocessors:
        neighbours //= 2
    return neighbours


def _cuda_scan(device: Device, rows: int, places: int, order: Order, threads: int | None) -> tuple[int, int]:
    """Return rows per block and lanes where lanes go along a row in order: as few as fill the device, since they wait
    for each other.
    """
    block = threads or CUDA_BLOCK
    if order is Order.ROWS:
        neighbours = _neighbours(rows, device.multiprocessors)
        lanes = _power_of_two_at_least(ceil(places / 16), 1, min(32, block // neighbours))
        return block // lanes, lanes
    lanes = _power_of_two_at_least(places, 1, 32)
    while lanes >= 32 and 8 * lanes < places and lanes < 1024 and rows * lanes < 1024 * device.multiprocessors:
        lanes *= 2
    lanes = min(lanes, threads or lanes)
    return max(1, block // lanes), lanes


def _cuda_sort(device: Device, rows: int, places: int, threads: int | None) -> tuple[int, int]:
    """Return rows per block and lanes that sort a row: one warp, without barriers, if it holds the row; four places a
    lane for longer rows, or two where rows are too few to fill the device.
    """
    lanes = (
        _power_of_two_at_least(places, 1, 32) if places <= 64 else _power_of_two_at_least(ceil(places / 4), 32, 1024)
    )
    if places > 64 and lanes < 1024 and rows * lanes < 1024 * device.multiprocessors:
        lanes *= 2
    lanes = min(lanes, threads or lanes)
    return max(1, (threads or CUDA_BLOCK) // lanes), lanes


def _cpu(device: Device, work: Work) -> tuple[int, int]:
    """Return rows per block and lanes of a CPU: long runs of neighbours for the prefetcher, but work for every core;
    several short rows at a time, since combining the lanes of one row is a chain.
    """
    places, period, again, sums = work.places, work.period, work.again, work.sums
    if work.order is Order.LANES:
        if places <= SHORT_ROW and not work.with_partials and not work.scans:
            return min(period, 16), _power_of_two_at_least(places, 1, device.warp_size)
        return 1, _power_of_two_at_least(places, 1, 64)
    least = LEAST_ROWS if work.rows * places >= MUCH else 2 * LEAST_ROWS
    share = max(ceil(work.rows / device.multiprocessors), least)
    # Each lane takes a run of places: as many lanes as that makes runs short, for the accuracy of their sums.
    lanes = 1 if places <= 32 else _power_of_two_at_least(ceil(places**0.5), 1, 64)
    most = min(period, 1024 if lanes == 1 else 512, share)
    if work.blocks is not None:
        # A block without rows still makes a partial result, of all its lanes.
        most = min(most, _power_of_two_at_least(ceil(work.rows / work.blocks), NEIGHBOURS, 1024))
    if sums:
        # Each row of a block has a sum of its own for each of them: in half of the first cache they stay there.
        most = min(most, max(_power_of_two_at_most(device.shared_per_block // (8 * sums)), 2 * NEIGHBOURS))
    if again:
        # What the first pass has read, the next finds in the core's share of the last cache.
        fit = device.l2_bytes // device.multiprocessors // (2 * again)
        most = min(most, max(_power_of_two_at_most(fit), NEIGHBOURS))
    return most, lanes


def _power_of_two_at_most(n: int) -> int:
    return 1 << (n.bit_length() - 1) if n > 0 else 0


def _power_of_two_at_least(n: int, low: int, high: int) -> int:
    power = low
    while power < n and power < high:
        power *= 2
    return power


def prefer(accesses: Iterable[tuple[Index, tuple[int, ...], int]]) -> Order:
    """Return the order that lets more bytes be read by neighbouring threads from neighbouring addresses.

    ``accesses`` are indices, dimensions and sizes in bytes of the buffers read and written.
    """
    votes = {Order.LANES: 0, Order.ROWS: 0}
    for index, dims, size in accesses:
        address = linearize(index, dims)
        if is_unit_stride(address, PLACE):
            votes[Order.LANES] += size
        elif is_unit_stride(address, ROW):
            votes[Order.ROWS] += size
    return Order.ROWS if votes[Order.ROWS] > votes[Order.LANES] else Order.LANES


_CPU_ROWS, _CPU_ROWS_TOGETHER = 256, 32
"""Of a loop, that a block has at least; and that wait for each other, two vectors of AVX-512, whose instructions fill
each other's latencies."""


def loop_split(device: Device, rows: int, threads: int | None = None, apart: bool = False, carry: int = 0) -> Split:
    """Return the split for a loop inside each thread: few rows per block, to spread them. On a CPU as many as keep
    their carry, of so many bytes each, in half of the nearest cache, so that what each step reads and writes are long
    runs of neighbours; or, if rows end ``apart``, few that wait for the last of them. ``threads`` are those of a block.
    """
    if threads is not None:
        rows_per_block = threads
    elif device.target.lanes_are_vectors:
        fit = device.shared_per_block // (2 * carry) if carry else 0
        most = _CPU_ROWS_TOGETHER if apart else max(_CPU_ROWS, fit)
        rows_per_block = min(most, max(1, ceil(rows / device.multiprocessors)))
    elif rows == 1:
        rows_per_block = 1  # what the one thread writes, it alone reads again
    else:
        rows_per_block = _power_of_two_at_least(ceil(rows / device.multiprocessors), 32, CUDA_BLOCK)
    return Split(rows, rows, rows_per_block, 1, Order.ROWS, 1, ceil(rows / rows_per_block))
