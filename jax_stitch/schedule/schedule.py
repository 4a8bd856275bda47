"""FusionPlan's kernels -> scheduled kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Any

from jax_stitch.analysis.accesses import Element, Walk
from jax_stitch.analysis.locality import ROW, row_index
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.nest import Nest
from jax_stitch.ir.pattern import Pattern
from jax_stitch.ir.team import TeamLoop
from jax_stitch.loops.sharing import team_threads
from jax_stitch.loops.sweeps import barrier_groups
from jax_stitch.options.template_error import TemplateError
from jax_stitch.schedule.bodies import few_sums, short_bodies
from jax_stitch.schedule.clusters import NONE, Clusters, clusters_of, meet_in_reductions
from jax_stitch.schedule.grain import in_vectors
from jax_stitch.schedule.model import (
    LoopStage,
    Order,
    Part,
    RowStage,
    ScheduledKernel,
    SortStage,
    Split,
    Stage,
    Storage,
    StorageKind,
)
from jax_stitch.schedule.residency import STATIC_BYTES, moved, residency
from jax_stitch.schedule.runs import interleaved_periods, interleaving, place_periods, with_cuts
from jax_stitch.schedule.shares import shared_out
from jax_stitch.schedule.split import CUDA_BLOCK, Work, choose, layouts, loop_split, prefer, run_length
from jax_stitch.schedule.stages import PatternView, stages_of
from jax_stitch.schedule.storage import MAX_KEPT_PER_THREAD, MAX_KEPT_REGISTERS, keep, lay_out, to_fetch, turns
from jax_stitch.schedule.streams import separate
from jax_stitch.schedule.team import team_schedule
from jax_stitch.schedule.template import Template, part_name, pick, template_of, wanted
from jax_stitch.schedule.vectors import row_vector_of, vectors_of
from jax_stitch.schedule.walks import (
    kept_for_their_row,
    places_of,
    stored_values,
    transfers,
    walk_stage,
    with_scans,
)


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
    """Lays the patterns of one kernel over the device's threads and memories.

    ``registers`` are those a thread of a GPU must be able to have: as few threads share a multiprocessor as that takes.
    None leaves it to the compiler, which may spill. ``templates`` are schedules that parts have to have, by the parts'
    names; raises ``TemplateError`` where one is not possible. A block then has the threads that they say. ``cluster``
    is how many blocks are to take each row together, where the device, the kernel and its stages let them; ``fetch``
    asks for rows that several passes go through to be copied to shared memory, where they can be.
    """
    kernel = [in_vectors(graph, p, device) for p in kernel]
    clusters = clusters_of(graph, kernel, device, cluster)
    asked = tuple(t for t in templates if t.name in {part_name(graph, p) for p in kernel})
    threads = _threads(graph, kernel, device, asked, clusters)
    if registers is not None and not asked:
        most = _power_of_two_at_most(device.registers_per_multiprocessor // registers)
        if (threads or _part(graph, kernel[0], device, None, (), clusters).split.threads) > most:
            threads = most
    # What a phase has written is not copied so by a later one.
    parts = tuple(
        _part(graph, p, device, threads, asked, NONE if k else clusters, fetch and not p.phase)
        for k, p in enumerate(kernel)
    )
    found = ScheduledKernel(name, graph, parts, asked=asked)
    together = None
    if any(p.split.row_vector > 1 for p in parts) and found.threads == device.threads_per_block:
        together = 1  # A compiler may spill for the sake of a second block, of which there is none.
    if registers is not None:
        together = max(1, device.registers_per_multiprocessor // (registers * found.threads))
    if not device.target.lanes_are_vectors and (kernel[-1].phase or any(p.spread for p in found.parts)):
        return replace(found, residency=residency(found, device, together))
    return replace(found, together=together)


def alternatives(kernel: ScheduledKernel, device: Device) -> tuple[Template, ...]:
    """Other schedules that the part of ``kernel`` that moves most could have, for ``templates``: the nearest to its own
    first. A loop has but one.
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
    found = dict.fromkeys(template_of(name, split) for split in splits)
    return tuple(t for t in found if t != template_of(name, own))


_OTHER_ORDER = 3
"""As how many times twice the threads another order of a block's threads counts."""


def _threads(
    graph: Graph, kernel: Sequence[Pattern], device: Device, asked: Sequence[Template], clusters: Clusters
) -> int | None:
    """Threads of a block that several patterns share; None where one has them for itself."""
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
    """Threads of a block that parts share which would each choose their own: what those with partial results need,
    where other threads have nothing to do; as few as there are schedulers of warps for beside a loop in threads, whose
    rows are to spread; else the most.
    """
    if any(isinstance(p.pattern.loop, Nest) for p in parts):
        return LOOP_THREADS
    own = [p.split.threads for p in parts if p.pattern.blocks is not None]
    return max(min(own) if own else max(p.split.threads for p in parts), 128)


LOOP_THREADS = 128
"""Threads of a block that share their multiprocessor's time with no other warp of it."""


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
        wide = _is_wide(graph, pattern) or any((level.trips or 0) >= 2**31 for level in pattern.loop.loops)
        apart = any(level.condition is not None for level in pattern.loop.loops)
        carried = [pattern.loop.graph[c.parameter] for level in pattern.loop.loops for c in level.carried]
        split = loop_split(device, pattern.rows, threads, apart, sum(map(node_bytes, carried)) // pattern.rows)
        return Part(pattern, split, (), {}, {}, 0, 0, ("thread",), {}, wide)
    ways = _ways(graph, pattern, device, threads, clusters)
    stages, stored, partials = ways.stages, ways.stored, ways.partials
    split = next(ways.splits) if template is None else pick(template, list(ways.splits))
    stages = shared_out(graph, stages, split, device)
    order = split.order
    period = split.period
    row = row_index(pattern.rows, period)
    shape = PatternView(graph, pattern, row)
    periods: dict[int, int] = {}
    if device.target.lanes_are_vectors and order is Order.LANES:
        periods = place_periods(shape, stages, stored)
        shape = PatternView(graph, pattern, row, periods)
        stages = with_cuts(shape, stages, stored)
    elif device.target.lanes_are_vectors and ways.group > 1 and order is Order.ROWS:
        periods = interleaved_periods(stages, ways.group)
        shape = PatternView(graph, pattern, row, periods)
    fetched = to_fetch(shape, stages, stored, split, device) if fetch else ()
    own = lay_out(shape, stages, split, fetched)
    storage, held = own.storage, stored | set(fetched)
    stages, kept, shared = keep(shape, stages, held, split, device, own.shared_bytes, partials)
    if fetched and shared > device.shared_per_block_optin - STATIC_BYTES:
        return _part(graph, pattern, device, threads, asked, clusters)
    stages = turns(with_scans(shape, stages, held), kept, split, device)
    return Part(
        pattern,
        split,
        stages,
        storage,
        kept,
        shared,
        own.reduction_bytes,
        _composition(stages, split, storage, kept),
        periods,
        ahead=device.target.lanes_are_vectors and order is Order.ROWS and split.rows_per_block < period,
        wide=_is_wide(graph, pattern),
        vectors=vectors_of(shape, stages, held, split, device, _in_order(stages, kept), ways.group),
        sum_block=device.target.elements_in_turn,
        mailbox=own.mailbox,
    )


def _in_order(stages: Sequence[Stage], kept: Mapping[Element, Storage]) -> set[int]:
    """Of how many places what is kept is in shared memory, or goes through it."""
    found = {s.size for s in kept.values() if s.kind is StorageKind.OWN_SHARED}
    return found | {s.size for s in stages if isinstance(s, LoopStage) and s.partials}


@dataclass(frozen=True, slots=True)
class _Ways:
    """How a part could be laid out: its stages, and the splits they allow."""

    stages: tuple[Stage, ...]
    stored: frozenset[int]
    partials: Sequence[int]
    group: int
    """How many places of a row lie between those of neighbouring rows."""
    splits: Iterator[Split]
    """The one that is chosen where nothing else is asked for, then all that are possible."""


def _ways(graph: Graph, pattern: Pattern, device: Device, threads: int | None, clusters: Clusters) -> _Ways:
    shape = PatternView(graph, pattern, row_index(pattern.rows))
    stages = kept_for_their_row(shape, stages_of(shape))
    stored = stored_values(shape, stages)
    stages = with_scans(shape, stages, stored)
    if device.target.lanes_are_vectors:
        stages = short_bodies(shape, separate(shape, stages, stored), stored)
    else:
        stages = few_sums(shape, stages, stored)
    walks = [walk_stage(shape, s, stored, ()) for s in stages]
    places = max((places_of(shape, s) for s in stages), default=1)
    read = list(transfers(shape, stages, walks))
    sorts = any(isinstance(s, SortStage) for s in stages)
    order = prefer(read) if places > 1 and not sorts else Order.LANES if sorts else Order.ROWS
    group = interleaving(shape, stages, walks, device.target.lanes_are_vectors) if order is Order.LANES else 1
    if group > 1:
        order = Order.ROWS
    partials = [i for s in stages if isinstance(s, LoopStage) for i in s.partials]
    partial_places = max((shape.operand_elements(graph[i])[1] for i in partials), default=1)
    if partial_places > 1:
        order = Order.LANES
    scans = any(isinstance(s, LoopStage) and s.scans for s in stages)

    if not meet_in_reductions(stages):
        clusters = NONE
    again = _bytes_again(graph, stages, walks) // max(pattern.rows, 1)
    sums = sum(len(s.partials) for s in stages if isinstance(s, RowStage))

    work = Work(
        pattern.rows, pattern.rows, places, order, pattern.blocks, threads, partial_places, scans, sorts, again, sums
    )
    work = replace(work, group=group)

    if _is_one_vector(shape, stages, stored, places, order, device):
        work = replace(work, one_lane=True)
    if order is Order.ROWS:
        work = replace(work, row_vector=row_vector_of(shape, stages, stored, device))

    def choice(order: Order, **fixed: Any) -> Split:
        in_runs = device.target.lanes_are_vectors and order is Order.ROWS
        period = run_length([access[:2] for access in read], ROW, pattern.rows, group) if in_runs else pattern.rows
        return choose(device, replace(work, order=order, period=period), **fixed)

    split = choice(order, cluster=clusters.wanted if order is Order.LANES else 1)
    while _shared_too_large(shape, stages, split, device) or _too_many_kept(shape, partials, split, device):
        split = choice(order, most_rows=split.rows_per_block // 2)

    def splits() -> Iterator[Split]:
        yield split
        orders = (
            [order] if places == 1 or partial_places > 1 or sorts else [order, *(o for o in Order if o is not order)]
        )
        for o in orders:
            for layout in layouts(device, replace(work, order=o), clusters.most):
                other = choice(o, layout=layout)
                if not _shared_too_large(shape, stages, other, device, single_rows=True):
                    yield other

    return _Ways(stages, stored, partials, group, splits())


def _is_one_vector(
    shape: PatternView, stages: Sequence[Stage], stored: Collection[int], places: int, order: Order, device: Device
) -> bool:
    """Whether rows are so short that a thread reads and writes one at once, and nothing of it is reduced."""
    if not all(isinstance(s, LoopStage) and not (s.reduces or s.scans or s.partials) for s in stages):
        return False
    rows = shape.pattern.rows
    alone = Split(rows, rows, 1, 1, order, 1, rows)
    return places > 1 and vectors_of(shape, stages, stored, alone, device) == {places: places}


def _bytes_again(graph: Graph, stages: Sequence[Stage], walks: Sequence[Walk]) -> int:
    """The bytes of what several passes over a row read, and of what the last of them write."""
    passes = [(s, w) for s, w in zip(stages, walks, strict=True) if isinstance(s, LoopStage)]
    read = [i for _, w in passes for i in {i for i, _ in w.loaded}]
    again = {i for i in read if read.count(i) > 1}
    return sum(node_bytes(graph[i]) for i in (*again, *(i for s, _ in passes[1:] for i in s.stores))) if again else 0


def _too_many_kept(shape: PatternView, partials: Sequence[int], split: Split, device: Device) -> bool:
    """Whether the partial results of several rows at a time are more than the threads' registers hold."""
    if device.target.lanes_are_vectors or split.rows_per_block == 1:
        return False
    per_thread = [ceil(shape.operand_elements(shape.graph[i])[1] / split.lanes) for i in partials]
    return sum(per_thread) > MAX_KEPT_REGISTERS or max(per_thread, default=0) > 2 * MAX_KEPT_PER_THREAD


def _team_part(pattern: Pattern, loop: TeamLoop, device: Device, threads: int | None, wide: bool) -> Part:
    team = team_schedule(loop, device, threads)
    split = Split(loop.rows, loop.rows, 1, team.threads, Order.LANES, 1, loop.rows)
    composition = ("thread", *["block"] * (team.threads > 1), *["grid"] * (loop.blocks > 1))
    wide = wide or loop.likely_trips >= 2**31
    return Part(pattern, split, (), {}, {}, team.shared_bytes, 0, composition, {}, wide, team)


def _shared_too_large(
    shape: PatternView, stages: Sequence[Stage], split: Split, device: Device, single_rows: bool = False
) -> bool:
    """Whether a block that does fewer rows at a time would fit better into shared memory; of ``single_rows``, whether
    they do not fit.
    """
    if device.target.lanes_are_vectors or (split.rows_per_block == 1 and not single_rows):
        return False
    stages = shared_out(shape.graph, stages, split, device)
    return lay_out(shape, stages, split).shared_bytes > device.shared_per_block_optin


MOST_NARROW = 2**31 - 2**20
"""Elements that 32-bit positions can address, with room for the threads past the end."""


def _is_wide(graph: Graph, pattern: Pattern) -> bool:
    """Whether positions need 64 bits: also those in values that are never in memory, which reshapes go by."""
    types = [graph[i].type for i in (*pattern.inside, *pattern.inputs)]
    return any(t.size > MOST_NARROW for t in types if isinstance(t, TensorType))


def _composition(
    stages: Sequence[Stage], split: Split, storage: Mapping[int, Storage], kept: Mapping[Element, Storage]
) -> tuple[str, ...]:
    reduces = any(isinstance(s, LoopStage) and (s.reduces or s.scans) for s in stages)
    found = ["thread"]
    if reduces and split.order is Order.LANES and split.lanes > 1:
        found.append("warp")
    block = reduces and (split.lanes > 32 or (split.order is Order.ROWS and split.lanes > 1))
    if block or any(s.kind is StorageKind.SHARED for s in storage.values()):
        found.append("block")
    if split.cluster > 1:
        found.append("cluster")
    return tuple(found)
