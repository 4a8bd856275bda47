"""Scheduling: the kernels of a FusionPlan -> scheduled kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import ceil, log2, prod
from typing import Any

from msgspec import Struct

from jax_stitch.analysis.accesses import Element, Walk
from jax_stitch.analysis.patterns.nest import Nest
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.indices.variables import ROW, row_index
from jax_stitch.loops.teams.sharing import team_threads
from jax_stitch.loops.teams.sweep_planner import barrier_groups
from jax_stitch.schedule.along import in_memory_order
from jax_stitch.schedule.beside import with_reductions_beside
from jax_stitch.schedule.bodies import short_bodies
from jax_stitch.schedule.clusters import NONE, Clusters, clusters_of, meet_in_reductions
from jax_stitch.schedule.divided import divided
from jax_stitch.schedule.fetched import to_fetch
from jax_stitch.schedule.grain import in_vectors
from jax_stitch.schedule.kept import with_kept
from jax_stitch.schedule.model import (
    InnerReducePass,
    LoopPass,
    OncePass,
    Order,
    Part,
    RowPass,
    ScheduledKernel,
    SortPass,
    Split,
    Storage,
    StorageKind,
)
from jax_stitch.schedule.residency import STATIC_BYTES, moved, residency
from jax_stitch.schedule.row_passes import PatternView, row_passes_of
from jax_stitch.schedule.runs import interleaved_periods, interleaving, place_periods, with_breaks
from jax_stitch.schedule.shares import shared_out
from jax_stitch.schedule.split import CUDA_BLOCK, Work, block_shapes, choose, loop_split, prefer
from jax_stitch.schedule.storage import MAX_CACHED_PER_THREAD, MAX_CACHED_REGISTERS, lay_out, with_batches, with_reuse
from jax_stitch.schedule.streams import separate
from jax_stitch.schedule.strides import run_length
from jax_stitch.schedule.team import team_schedule
from jax_stitch.schedule.template import Template, part_name, pick, template_of, wanted
from jax_stitch.schedule.vectors import row_vector_of, vectors_of
from jax_stitch.schedule.walks import cached_for_their_row, cached_values, places_of, transfers, walk_pass, with_scans
from jax_stitch.util.options.template_error import TemplateError
from jax_stitch.util.values import replace


def schedule(
    graph: Graph,
    kernel: Sequence[Pattern],
    device: Device,
    name: str,
    registers: int | None = None,
    templates: Sequence[Template] = (),
    cluster: int = 1,
    fetch: bool = False,
) -> ScheduledKernel:
    """Return the schedule of the patterns of one kernel on the device's threads and memories.

    ``registers`` is the number that each thread of a GPU has to have, which limits the threads per multiprocessor.
    None leaves it to the compiler, which may spill. ``templates`` prescribe schedules for parts, by the parts' names,
    and with them the threads of a block; raise ``TemplateError`` where one is not possible. ``cluster`` is the wanted
    number of blocks per row, used where the device, the kernel and its passes allow it; with ``fetch``, rows that
    several passes read are copied to shared memory, where possible.
    """
    kernel = [in_vectors(graph, p, device) for whole in kernel for p in divided(graph, whole, device)]
    clusters = clusters_of(graph, kernel, device, cluster)
    asked = tuple(t for t in templates if t.name in {part_name(graph, p) for p in kernel})
    threads = _threads(graph, kernel, device, asked, clusters)
    if registers is not None and not asked:
        most = _power_of_two_at_most(device.registers_per_multiprocessor // registers)
        if (threads or _part(graph, kernel[0], device, None, (), clusters).split.threads) > most:
            threads = most
    # Later phases fetch nothing: outputs of earlier phases cannot be copied in this way.
    parts = tuple(
        _part(graph, p, device, threads, asked, NONE if k else clusters, fetch and not p.phase)
        for k, p in enumerate(kernel)
    )
    scheduled = ScheduledKernel(name, graph, parts, asked=asked, rows_are_loops=device.target.lanes_are_vectors)
    together = None
    if any(p.split.row_vector > 1 for p in parts) and scheduled.threads == device.threads_per_block:
        together = 1  # A compiler might spill to fit a second block, which never fits.
    if registers is not None:
        together = max(1, device.registers_per_multiprocessor // (registers * scheduled.threads))
    if not device.target.lanes_are_vectors and (kernel[-1].phase or any(p.spread for p in scheduled.parts)):
        return replace(scheduled, residency=residency(scheduled, device, together))
    return replace(scheduled, together=together)


def alternatives(kernel: ScheduledKernel, device: Device) -> tuple[Template, ...]:
    """Return other possible schedules, as ``templates``, of the part of ``kernel`` that moves most bytes, those nearest
    to its own first. A loop has no others.
    """
    part = max(kernel.parts, key=lambda p: moved(kernel.graph, p))
    if part.pattern.loop is not None:
        return ()
    threads = None if len(kernel.parts) == 1 else kernel.threads
    own = part.split

    def distance(split: Split) -> float:
        sizes = log2(split.rows_per_block / own.rows_per_block), log2(split.lanes / own.lanes)
        return abs(sizes[0]) + abs(sizes[1]) + _OTHER_ORDER * (split.order is not own.order)

    name = part_name(kernel.graph, part.pattern)
    clusters = clusters_of(kernel.graph, [p.pattern for p in kernel.parts], device, own.cluster)
    clusters = clusters if part is kernel.parts[0] else NONE
    splits = sorted(_ways(kernel.graph, part.pattern, device, threads, clusters).splits, key=distance)
    templates = dict.fromkeys(template_of(name, split) for split in splits)
    return tuple(t for t in templates if t != template_of(name, own))


_OTHER_ORDER = 3
"""The distance of another order of a block's threads, where doubling the rows or lanes counts as one."""


def _threads(
    graph: Graph, kernel: Sequence[Pattern], device: Device, asked: Sequence[Template], clusters: Clusters
) -> int | None:
    """Return the threads of a block that several patterns share; None for a single pattern."""
    if device.target.lanes_are_vectors or len(kernel) == 1:
        return None
    if kernel[-1].phase:
        return _common_threads(
            [_part(graph, p, device, None, asked, NONE if k else clusters) for k, p in enumerate(kernel)]
        )
    teams = [team_threads(p.loop, barrier_groups(p.loop), device) for p in kernel if isinstance(p.loop, TeamLoop)]
    return max(teams, default=CUDA_BLOCK)


def _power_of_two_at_most(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def _common_threads(parts: Sequence[Part]) -> int:
    """Return the threads of a block shared by parts that would each choose another number. Beside a loop in threads it
    is one warp per scheduler, so that its rows spread; beside a team's loop, which takes longest, the team's; with
    partial results the number that these need, since other threads would idle; else the most.
    """
    if any(isinstance(p.pattern.loop, Nest) for p in parts):
        return LOOP_THREADS
    teams = [p.split.threads for p in parts if p.team is not None]
    if teams:
        return max(*teams, 128)
    own = [p.split.threads for p in parts if p.pattern.blocks is not None]
    return max(min(own) if own else max(p.split.threads for p in parts), 128)


LOOP_THREADS = 128
"""Threads of a block with one warp for each scheduler of a multiprocessor."""


def _part(
    graph: Graph,
    pattern: Pattern,
    device: Device,
    threads: int | None,
    asked: Sequence[Template],
    clusters: Clusters,
    fetch: bool = False,
) -> Part:
    name = part_name(graph, pattern)
    template = wanted(asked, name)
    if template is not None and pattern.loop is not None:
        raise TemplateError(f"{template}: {name} is a loop, which has but one schedule")
    if isinstance(pattern.loop, TeamLoop):
        return _team_part(pattern, pattern.loop, device, threads, _is_wide(graph, pattern))
    if pattern.loop is not None:
        wide = _is_wide(graph, pattern) or any((nested.trips or 0) >= 2**31 for nested in pattern.loop.loops)
        apart = any(nested.condition is not None for nested in pattern.loop.loops)
        carried = [pattern.loop.graph[c.parameter] for nested in pattern.loop.loops for c in nested.carried]
        split = loop_split(device, pattern.rows, threads, apart, sum(map(node_bytes, carried)) // pattern.rows)
        return Part(pattern, split, (), {}, {}, 0, 0, ("thread",), {}, wide)
    ways = _ways(graph, pattern, device, threads, clusters)
    passes, cached, partials = ways.passes, ways.cached, ways.partials
    split = next(ways.splits) if template is None else pick(template, list(ways.splits))
    order = split.order
    period = split.period
    row = row_index(pattern.rows, period)
    shape = PatternView(graph, pattern, row)
    passes = shared_out(shape, passes, cached, split, device)
    periods: dict[int, int] = {}
    if device.target.lanes_are_vectors and order is Order.LANES:
        periods = place_periods(shape, passes, cached)
        shape = PatternView(graph, pattern, row, periods)
        passes = in_memory_order(shape, with_breaks(shape, passes, cached), cached, split, device)
    elif device.target.lanes_are_vectors and ways.group > 1 and order is Order.ROWS:
        periods = interleaved_periods(passes, ways.group)
        shape = PatternView(graph, pattern, row, periods)
    fetched = to_fetch(shape, passes, cached, split, device) if fetch else ()
    row_storage = lay_out(shape, passes, split, fetched)
    storage, held = row_storage.storage, cached | set(fetched)
    passes, own_storage, shared = with_reuse(shape, passes, held, split, device, row_storage.shared_bytes, partials)
    if fetched and shared > device.shared_per_block_optin - STATIC_BYTES:
        return _part(graph, pattern, device, threads, asked, clusters)
    passes = with_batches(with_scans(shape, passes, held), own_storage, split, device)
    return Part(
        pattern,
        split,
        passes,
        storage,
        own_storage,
        shared,
        row_storage.reduction_bytes,
        _composition(passes, split, storage, own_storage),
        periods,
        ahead=device.target.lanes_are_vectors and order is Order.ROWS and split.rows_per_block < period,
        wide=_is_wide(graph, pattern),
        vectors=vectors_of(shape, passes, held, split, device, _in_order(passes, own_storage), ways.group),
        sum_block=device.target.elements_in_turn,
        mailbox=row_storage.mailbox,
    )


def _in_order(passes: Sequence[RowPass], own: Mapping[Element, Storage]) -> set[int]:
    """Return the numbers of places of values that are cached in shared memory or pass through it."""
    sizes = {s.size for s in own.values() if s.kind is StorageKind.OWN_SHARED}
    return sizes | {s.size for s in passes if isinstance(s, LoopPass) and s.partials}


class _Ways(Struct, frozen=True):
    """The possible layouts of a part: its passes, and the splits that they allow."""

    passes: tuple[RowPass, ...]
    cached: frozenset[int]
    partials: Sequence[int]
    group: int
    """The number of places of a row that lie between those of neighbouring rows."""
    splits: Iterator[Split]
    """The default split, then all possible ones."""


def _ways(graph: Graph, pattern: Pattern, device: Device, threads: int | None, clusters: Clusters) -> _Ways:
    shape = PatternView(graph, pattern, row_index(pattern.rows))
    passes = cached_for_their_row(shape, row_passes_of(shape))
    cached = cached_values(shape, passes)
    passes = with_scans(shape, passes, cached)
    if device.target.lanes_are_vectors:
        passes = with_kept(shape, with_reductions_beside(shape, passes, cached), cached)
        cached = cached_values(shape, passes)
        passes = short_bodies(shape, separate(shape, passes, cached), cached)
    walks = [walk_pass(shape, s, cached, ()) for s in passes]
    places = max((_work_places(shape, s, device) for s in passes), default=1)
    read = list(transfers(shape, passes, walks))
    sorts = any(isinstance(s, SortPass) for s in passes)
    order = prefer(read) if places > 1 and not sorts else Order.LANES if sorts else Order.ROWS
    group = interleaving(shape, passes, walks, device.target.lanes_are_vectors) if order is Order.LANES else 1
    if group > 1:
        order = Order.ROWS
    partials = [i for s in passes if isinstance(s, LoopPass) for i in s.partials]
    partial_places = max((shape.operand_elements(graph[i])[1] for i in partials), default=1)
    if partial_places > 1:
        order = Order.LANES
    scans = any(isinstance(s, LoopPass) and s.scans for s in passes)

    if not meet_in_reductions(passes):
        clusters = NONE
    again = _bytes_again(graph, passes, walks) // max(pattern.rows, 1)
    sums = sum(len(s.partials) for s in passes if isinstance(s, OncePass))

    work = Work(
        pattern.rows, pattern.rows, places, order, pattern.blocks, threads, partial_places, scans, sorts, again, sums
    )
    work = replace(work, group=group)

    if _is_one_vector(shape, passes, cached, places, order, device):
        work = replace(work, one_lane=True)
    if order is Order.ROWS:
        work = replace(work, row_vector=row_vector_of(shape, passes, cached, device))

    def choice(order: Order, **fixed: Any) -> Split:
        in_runs = device.target.lanes_are_vectors and order is Order.ROWS
        period = run_length([access[:2] for access in read], ROW, pattern.rows, group) if in_runs else pattern.rows
        return choose(device, replace(work, order=order, period=period), **fixed)

    split = choice(order, cluster=clusters.wanted if order is Order.LANES else 1)
    while _shared_too_large(shape, passes, cached, split, device) or _too_many_cached(shape, partials, split, device):
        split = choice(order, most_rows=split.rows_per_block // 2)

    def splits() -> Iterator[Split]:
        yield split
        orders = (
            [order] if places == 1 or partial_places > 1 or sorts else [order, *(o for o in Order if o is not order)]
        )
        for o in orders:
            for block_shape in block_shapes(device, replace(work, order=o), clusters.most):
                other = choice(o, block_shape=block_shape)
                if not _shared_too_large(shape, passes, cached, other, device, single_rows=True):
                    yield other

    return _Ways(passes, cached, partials, group, splits())


def _work_places(shape: PatternView, row_pass: RowPass, device: Device) -> int:
    """Return the places of a row with work for lanes in a pass: on a GPU, all that an inner reduction reads."""
    places = places_of(shape, row_pass)
    if device.target.lanes_are_vectors or not isinstance(row_pass, InnerReducePass):
        return places
    return places * prod(row_pass.reduced)


def _is_one_vector(
    shape: PatternView, passes: Sequence[RowPass], cached: Collection[int], places: int, order: Order, device: Device
) -> bool:
    """Return whether a thread reads and writes a whole row as one vector, and nothing in it is reduced."""
    if not all(isinstance(s, LoopPass) and not (s.reduces or s.scans or s.partials) for s in passes):
        return False
    rows = shape.pattern.rows
    one_lane = Split(rows, rows, 1, 1, order, 1, rows)
    return places > 1 and vectors_of(shape, passes, cached, one_lane, device) == {places: places}


def _bytes_again(graph: Graph, passes: Sequence[RowPass], walks: Sequence[Walk]) -> int:
    """Return the bytes of inputs that several passes over a row read, with the writes of all but the first; or 0."""
    loops = [(s, w) for s, w in zip(passes, walks, strict=True) if isinstance(s, LoopPass)]
    read = [i for _, w in loops for i in {i for i, _ in w.loaded}]
    again = {i for i in read if read.count(i) > 1}
    return sum(node_bytes(graph[i]) for i in (*again, *(i for s, _ in loops[1:] for i in s.writes))) if again else 0


def _too_many_cached(shape: PatternView, partials: Sequence[int], split: Split, device: Device) -> bool:
    """Return whether the partial results of several rows at a time exceed the threads' registers."""
    if device.target.lanes_are_vectors or split.rows_per_block == 1:
        return False
    per_thread = [ceil(shape.operand_elements(shape.graph[i])[1] / split.lanes) for i in partials]
    return sum(per_thread) > MAX_CACHED_REGISTERS or max(per_thread, default=0) > 2 * MAX_CACHED_PER_THREAD


def _team_part(pattern: Pattern, loop: TeamLoop, device: Device, threads: int | None, wide: bool) -> Part:
    team = team_schedule(loop, device, threads)
    split = Split(loop.rows, loop.rows, 1, team.threads, Order.LANES, 1, loop.rows)
    composition = ("thread", *["block"] * (team.threads > 1), *["grid"] * (loop.blocks > 1))
    wide = wide or loop.likely_trips >= 2**31
    return Part(pattern, split, (), {}, {}, team.shared_bytes, 0, composition, {}, wide, team)


def _shared_too_large(
    shape: PatternView,
    passes: Sequence[RowPass],
    cached: Collection[int],
    split: Split,
    device: Device,
    single_rows: bool = False,
) -> bool:
    """Return whether a block's rows exceed its shared memory. A block of a single row, which cannot be made smaller,
    counts as fitting unless ``single_rows``.
    """
    if device.target.lanes_are_vectors or (split.rows_per_block == 1 and not single_rows):
        return False
    passes = shared_out(shape, passes, cached, split, device)
    return lay_out(shape, passes, split).shared_bytes > device.shared_per_block_optin


MOST_NARROW = 2**31 - 2**20
"""The most elements that 32-bit positions can address, with room for threads past the end."""


def _is_wide(graph: Graph, pattern: Pattern) -> bool:
    """Return whether positions need 64 bits. Values that are never in memory count: reshapes use positions in them."""
    types = [graph[i].type for i in (*pattern.inside, *pattern.inputs)]
    return any(t.size > MOST_NARROW for t in types if isinstance(t, TensorType))


def _composition(
    passes: Sequence[RowPass], split: Split, storage: Mapping[int, Storage], own: Mapping[Element, Storage]
) -> tuple[str, ...]:
    reduces = any(isinstance(s, LoopPass) and (s.reduces or s.scans) for s in passes)
    schemes = ["thread"]
    if reduces and split.order is Order.LANES and split.lanes > 1:
        schemes.append("warp")
    block = reduces and (split.lanes > 32 or (split.order is Order.ROWS and split.lanes > 1))
    if block or any(s.kind is StorageKind.SHARED for s in storage.values()):
        schemes.append("block")
    if split.cluster > 1:
        schemes.append("cluster")
    return tuple(schemes)
