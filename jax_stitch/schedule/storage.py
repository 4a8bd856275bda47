"""Where values live between passes: results of reductions, and what several passes over the row need."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import ceil, prod

from msgspec import Struct

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis.accesses import PARTIAL, Element, Walk
from jax_stitch.analysis.binding import inner_sizes
from jax_stitch.analysis.sorts import offsets
from jax_stitch.devices import Device
from jax_stitch.graph import sorts
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.indices.variables import BATCH, PLACE, ROW, RUN
from jax_stitch.ir.operations import HEAVY
from jax_stitch.schedule.model import (
    InnerReducePass,
    LoopPass,
    Mailbox,
    OncePass,
    Order,
    RowPass,
    SortPass,
    Split,
    Storage,
    StorageKind,
)
from jax_stitch.schedule.row_passes import PatternView, results_of
from jax_stitch.schedule.walks import reduced_operands, walk_pass
from jax_stitch.util.values import replace

HALF = frozenset({"bf16", "f16"})
MAX_CACHED_PER_THREAD = 16
MAX_CACHED_REGISTERS = 64
"""32-bit registers of a thread that cached values may take together."""

MOST_AGAIN, MOST_AGAIN_FAR = 24, 128
"""Cheap operations that a pass computes again where an earlier one has: more are cached. The latter where a row's
values do not fit a CPU's near cache: to write and read them takes as long (LAMB, whose rows are whole weights).
"""


class RowStorage(Struct, frozen=True):
    """Where the values cached for all threads of a row live."""

    storage: dict[int, Storage]
    shared_bytes: int
    """Of a block, ``reduction_bytes`` of reductions among them."""
    reduction_bytes: int
    mailbox: Mailbox | None


def lay_out(shape: PatternView, passes: Sequence[RowPass], split: Split, fetched: Collection[int] = ()) -> RowStorage:
    """Lay out what the passes of a part cache for all threads of a row, and the inputs whose rows are ``fetched``."""
    graph = shape.graph
    storage: dict[int, Storage] = {}
    scratch, exchanged = _exchanged(shape, passes, split)
    offset = _aligned(scratch)
    mailbox = None
    if split.cluster > 1:
        mailbox = Mailbox(offset, exchanged)
        offset += _aligned(2 * split.cluster * exchanged)
    for s in passes:
        if isinstance(s, OncePass):
            for i in s.caches:
                storage[i] = Storage(i, StorageKind.ROW, graph[i].tensor, 1)
        elif isinstance(s, LoopPass):
            for r in s.reduces:
                for i in results_of(graph, graph[r]):
                    if i >= 0:
                        storage[i] = Storage(i, StorageKind.ROW, graph[i].tensor, 1)
            for i in s.keeps:
                storage[i] = Storage(i, StorageKind.SHARED, graph[i].tensor, s.size, offset)
                offset += _aligned(split.rows_per_block * s.size * 8)
        elif isinstance(s, SortPass):
            starts, size = offsets(graph, graph[s.sort], split.rows_per_block)
            fields = sorts.fields_of(graph[s.sort])
            for i, operand in zip(sorts.results_of(graph, graph[s.sort]), graph[s.sort].operands, strict=True):
                if i >= 0:
                    at = offset + starts[fields.index(operand)]
                    storage[i] = Storage(i, StorageKind.SHARED, graph[i].tensor, s.size, at)
            offset += size
        else:
            for r in s.reduces:
                results = results_of(graph, graph[r])
                for i in results:
                    if i >= 0:
                        storage[i] = Storage(i, StorageKind.SHARED, graph[i].tensor, s.left, offset)
                offset += results_bytes(s, split, len(results))
                if s.in_blocks or s.neighbours:
                    offset += s.arrays_beside * block_bytes(s, split)
                elif s.shares > 1:
                    offset += sum(shares_bytes(s, split, len(results)))
    for i in fetched:
        size = prod(inner_sizes(shape.pattern.bindings[i]))
        storage[i] = Storage(i, StorageKind.SHARED, graph[i].tensor, size, offset)
        offset += own_bytes(graph[i].tensor, size, split)
    return RowStorage(storage, offset, scratch, mailbox)


def _exchanged(shape: PatternView, passes: Sequence[RowPass], split: Split) -> tuple[int, int]:
    """Return bytes through which a block's threads hand each other parts of results, and a cluster's blocks one
    result.
    """
    scratch = exchanged = 0
    for s in passes:
        reduces = s.reduces if isinstance(s, LoopPass) else ()
        partials = s.partials if isinstance(s, OncePass) else ()
        for r in (*reduces, *partials):
            operands = [shape.graph[o].tensor for o in reduced_operands(shape.graph, r)]
            width = sum(8 for _ in operands)
            if split.lanes > 32 or partials:
                scratch = max(scratch, 32 * width)
            exchanged = max(exchanged, width)
            if split.order is Order.ROWS and split.lanes > 1:
                scratch = max(scratch, split.rows_per_block * split.lanes * width)
        if isinstance(s, LoopPass) and s.partials and split.rows_per_block > 1:
            # Half of the threads hand over what they have at a time.
            scratch = max(scratch, 8 * (split.threads // 2) * ceil(s.size / split.lanes))
        if isinstance(s, LoopPass) and s.scans and split.lanes > (32 if split.order is Order.LANES else 1):
            batch = min(ceil(s.size / split.lanes), MAX_CACHED_PER_THREAD)
            totals = split.threads // 32 * batch if split.order is Order.LANES else split.threads
            scratch = max(scratch, 8 * totals)
    return scratch, exchanged


def results_bytes(row_pass: InnerReducePass, split: Split, results: int) -> int:
    """Return the bytes of shared memory for a reduction's results, one array of structures."""
    return _aligned(split.rows_per_block * row_pass.left * 8 * results)


def block_bytes(row_pass: InnerReducePass, split: Split) -> int:
    """Return the bytes of shared memory for a reduction's blocks, or for its shares that are neighbours."""
    return _aligned(split.rows_per_block * row_pass.size * 8)


def shares_bytes(row_pass: InnerReducePass, split: Split, results: int) -> tuple[int, int]:
    """Return the bytes of shared memory for a reduction's shares, and groups of them."""
    places = row_pass.share_places, row_pass.left * row_pass.groups
    shares, groups = (_aligned(split.rows_per_block * n * 8 * results) for n in places)
    return shares, groups


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64


def _partials_cached(
    shape: PatternView, split: Split, device: Device, shared: int, partials: Sequence[int]
) -> tuple[dict[Element, Storage], int, int]:
    """Return where partial results are cached, the registers of a thread and the shared memory then used."""
    own: dict[Element, Storage] = {}
    registers = 0
    for i in partials:
        index, size = shape.operand_elements(shape.graph[i])
        per_thread = ceil(size / split.lanes)
        storage = Storage(i, StorageKind.REGISTERS, shape.graph[i].tensor, size, 0, index)
        too_many = not device.target.lanes_are_vectors and registers + per_thread > MAX_CACHED_REGISTERS
        if too_many or per_thread > 2 * MAX_CACHED_PER_THREAD:
            storage = replace(storage, kind=StorageKind.OWN_SHARED, offset=shared)
            shared += _aligned(split.own_places(size) // split.rows_per_block * 8)
        else:
            registers += per_thread
        own[(i, index)] = storage
    return own, registers, shared


def with_reuse(
    shape: PatternView,
    passes: tuple[RowPass, ...],
    cached: Collection[int],
    split: Split,
    device: Device,
    shared: int,
    partials: Sequence[int],
) -> tuple[tuple[RowPass, ...], dict[Element, Storage], int]:
    """Return values that several passes over the row need, cached where the first pass computed them (computation
    reuse, 2021 paper, section 4.5).
    """
    graph = shape.graph
    own, registers, shared = _partials_cached(shape, split, device, shared, partials)
    available: dict[int, dict[Element, None]] = {}
    first_passes: dict[int, dict[Element, int]] = {}
    last_use: dict[Element, int] = {}
    uses: dict[int, list[Element]] = {}
    caches: dict[int, list[Element]] = {}
    out_of_place = _out_of_place(passes, split, device)
    for k, s in enumerate(passes):
        if not isinstance(s, LoopPass) or s.size in out_of_place:
            continue
        known, first_pass = available.setdefault(s.size, {}), first_passes.setdefault(s.size, {})
        known.update(_dear_together(shape, s, cached, known, first_pass, device))
        hits = [e for e in walk_pass(shape, s, cached, tuple(known)).cached if e in known]
        while hits:
            e = hits.pop(0)
            if e not in own:
                storage = _own_storage(shape, e, s.size, split, device, registers, shared)
                idle = _idle(own, known, last_use, k, hits) if storage is None else None
                if idle is not None:  # No pass reads it from here on: its registers are others'.
                    del known[idle]
                    registers -= _registers(own[idle], split)
                    hits.insert(0, e)
                    continue
                if storage is None:
                    # What it is computed from may be cached, and there may be room for that.
                    del known[e]
                    again = walk_pass(shape, s, cached, tuple(known)).cached
                    hits += [o for o in again if o in known and o not in hits and o not in uses.get(k, ())]
                    continue
                if storage.kind is StorageKind.REGISTERS:
                    registers += _registers(storage, split)
                else:
                    shared = storage.offset + own_bytes(storage.type, s.size, split)
                own[e] = storage
                _taken(available, e, s.size)
                caches.setdefault(first_pass[e], []).append(e)
            uses.setdefault(k, []).append(e)
            last_use[e] = k
        for e, is_load in _reusable(graph, walk_pass(shape, s, cached, uses.get(k, ()))):
            if e not in known and e not in own and e[0] not in cached:  # What a pass keeps, all lanes have.
                first_pass[e] = k
                if _is_worth_caching(graph, e, is_load, device):
                    known[e] = None
    changed = tuple(
        replace(s, caches=tuple(caches.get(k, ())), uses=tuple(e for e in uses.get(k, ()) if e in own))
        if isinstance(s, LoopPass)
        else s
        for k, s in enumerate(passes)
    )
    return changed, own, shared


def _out_of_place(passes: Sequence[RowPass], split: Split, device: Device) -> set[int]:
    """Return the sizes of passes in some of which a thread of a GPU has other places than in the rest: those that scan
    backward, or over lanes that are not neighbours.
    """
    if device.target.lanes_are_vectors:
        return set()
    scanning = [s for s in passes if isinstance(s, LoopPass) and s.scans]
    return {s.size for s in scanning if s.backward or split.order is Order.ROWS}


def with_batches(
    passes: Sequence[RowPass], own: Mapping[Element, Storage], split: Split, device: Device
) -> tuple[RowPass, ...]:
    """Return the passes that scan with the places of each batch: a few, whose loads are under way together; the whole
    row where values are cached in registers, which have one place each.
    """
    batched: list[RowPass] = []
    for s in passes:
        if isinstance(s, LoopPass) and s.scans and not device.target.lanes_are_vectors:
            in_registers = any(own[e].kind is StorageKind.REGISTERS for e in (*s.caches, *s.uses))
            s = replace(s, batch=ceil(s.size / split.lanes) if in_registers else places_in_batch(s, split))
        batched.append(s)
    return tuple(batched)


def places_in_batch(row_pass: LoopPass, split: Split) -> int:
    """Return the places that a lane takes at a time where it scans; with rows fastest many, since lanes then meet in
    memory.
    """
    return min(ceil(row_pass.size / split.lanes), 4 if split.order is Order.LANES else 16)


def _dear_together(
    shape: PatternView,
    row_pass: LoopPass,
    cached: Collection[int],
    known: Collection[Element],
    computed: Collection[Element],
    device: Device,
) -> dict[Element, None]:
    """Return what a pass should find cached because it would compute much of what earlier passes have, each operation
    of it cheap: a chain of reductions would grow with the square of its length.
    """
    again = [e for e in walk_pass(shape, row_pass, cached, tuple(known)).computed if e in computed and e not in known]
    far = device.target.lanes_are_vectors and 4 * row_pass.size > device.shared_per_block_optin
    if len(again) <= (MOST_AGAIN_FAR if far else MOST_AGAIN):
        return {}
    cheap = {e for e in again if shape.graph[e[0]].op not in ("broadcast", "reshape", "convert")}
    read = walk_pass(shape, row_pass, cached, (*known, *cheap)).cached
    return {e: None for e in read if e in cheap}


def _taken(available: Mapping[int, dict[Element, None]], element: Element, size: int) -> None:
    """Take from passes of other sizes what is cached for those of one: a place is another lane's there, even if it is
    reached by the same index.
    """
    for other in available.keys() - {size}:
        available[other].pop(element, None)


def _reusable(graph: Graph, walk: Walk) -> Iterator[tuple[Element, bool]]:
    """Yield what a pass always computes or loads and may be cached, and whether it loads it."""
    for e, always in (*walk.computed.items(), *walk.loaded.items()):
        if always and _may_be_cached(graph, e):
            yield e, e in walk.loaded


def _idle(
    own: Mapping[Element, Storage],
    known: Collection[Element],
    last_use: Mapping[Element, int],
    number: int,
    wanted: Collection[Element],
) -> Element | None:
    """Return what is cached in registers and was read least lately, by no pass since the one before this."""
    idle = [e for e, s in own.items() if s.kind is StorageKind.REGISTERS and e in known and e not in wanted]
    oldest = min(idle, key=lambda e: last_use.get(e, number), default=None)
    return oldest if oldest is not None and last_use.get(oldest, number) < number - 1 else None


def _registers(storage: Storage, split: Split) -> int:
    """Return the registers of a thread, of 32 bits each."""
    wide = 2 if storage.type.dtype in ("f64", "s64", "u64") else 1
    return ceil(storage.size / split.lanes) * split.row_vector * wide


def _may_be_cached(graph: Graph, element: Element) -> bool:
    """Return whether it depends on the place, and on none that is data, which only the operation that looks it up
    knows.
    """
    i, index = element
    node = graph[i]
    variables = {v.name for e in index for v in e.variables()}
    if not isinstance(node.type, TensorType) or not {PLACE, RUN} & variables or variables - {ROW, BATCH, PLACE, RUN}:
        return False
    return node.op not in (PARTIAL, "reduce", "sort", "iota", "constant")


def _is_worth_caching(graph: Graph, element: Element, is_load: bool, device: Device) -> bool:
    """Return whether an element is worth caching: on a GPU whatever may be cached, on a CPU, where a second read comes
    from the cache, only what is costly to compute.
    """
    node = graph[element[0]]
    if node.op == "convert" and graph[node.operands[0]].tensor.dtype in HALF and node.tensor.dtype == "f32":
        return False  # In a register it is what it is made of, in memory twice as long.
    if device.target.lanes_are_vectors:
        return node.op in HEAVY or node.op == "reduce-window"
    return is_load or node.op != "broadcast"


def _own_storage(
    shape: PatternView, element: Element, size: int, split: Split, device: Device, registers: int, shared: int
) -> Storage | None:
    graph, (i, index) = shape.graph, element
    per_thread = ceil(size / split.lanes) * split.row_vector
    if device.target.lanes_are_vectors:
        # Cached values must stay in the level-2 cache to be cheaper than recomputing them.
        if split.rows_per_block * size * 4 > device.shared_per_block_optin // 4:
            return None
        return Storage(i, StorageKind.REGISTERS, graph[i].tensor, size, 0, index)
    most_registers, most_shared = MAX_CACHED_REGISTERS, device.shared_per_block
    if split.cluster > 1:  # Its blocks are large, and each may fill its multiprocessor's memory.
        most_registers = min(MAX_CACHED_REGISTERS, device.registers_per_multiprocessor // split.threads // 2)
        most_shared = device.shared_per_block_optin
    if per_thread <= MAX_CACHED_PER_THREAD and registers + per_thread <= most_registers:
        return Storage(i, StorageKind.REGISTERS, graph[i].tensor, size, 0, index)
    if split.cluster > 1 and i in shape.pattern.inside:
        return None  # The room is for what would be read again.
    if shared + own_bytes(graph[i].tensor, size, split) <= most_shared:
        return Storage(i, StorageKind.OWN_SHARED, graph[i].tensor, size, shared, index)
    return None


def own_bytes(type_: TensorType, size: int, split: Split) -> int:
    """Return the shared memory of a block for a value that its threads cache at their own places: as wide as in
    buffers.
    """
    return _aligned(split.own_places(size) * ELEMENT_TYPES[type_.dtype].numpy.itemsize)
