"""FusionPlan's kernels -> scheduled kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil

from jax_stitch.devices import Device
from jax_stitch.explore.binding import Binding
from jax_stitch.explore.cost import node_bytes
from jax_stitch.explore.layouts import team_threads
from jax_stitch.explore.locality import BATCH, PARTIAL, PLACE, ROW, RUN, Walk, row_index, walk
from jax_stitch.explore.pattern import Pattern
from jax_stitch.explore.phases import levels_of
from jax_stitch.explore.support import HEAVY
from jax_stitch.explore.team import TeamLoop
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.indexing.maps import Index
from jax_stitch.schedule.model import (
    KeptReduceStage,
    LoopStage,
    Order,
    Part,
    Place,
    Residency,
    RowStage,
    ScheduledKernel,
    Split,
    Stage,
    Storage,
)
from jax_stitch.schedule.split import CUDA_BLOCK, choose, loop_split, prefer, run_length
from jax_stitch.schedule.stages import Shape, results_of, stages_of
from jax_stitch.schedule.team import team_schedule

Element = tuple[int, Index]

MAX_KEPT_PER_THREAD = 16
MAX_KEPT_REGISTERS = 64
"""32-bit registers of a thread that kept values may take together."""


def schedule(graph: Graph, kernel: Sequence[Pattern], device: Device, name: str) -> ScheduledKernel:
    """Lays the patterns of one kernel over the device's threads and memories."""
    if device.kind != "cuda" or len(kernel) == 1:
        return ScheduledKernel(name, graph, tuple(_part(graph, p, device, None) for p in kernel))
    if not kernel[-1].phase:
        teams = [team_threads(p.team, levels_of(p.team), device) for p in kernel if p.team is not None]
        threads = max(teams, default=CUDA_BLOCK)
        return ScheduledKernel(name, graph, tuple(_part(graph, p, device, threads) for p in kernel))
    threads = _common_threads([_part(graph, p, device, None) for p in kernel])
    found = ScheduledKernel(name, graph, tuple(_part(graph, p, device, threads) for p in kernel))
    return replace(found, residency=_residency(found, device))


def _common_threads(parts: Sequence[Part]) -> int:
    """Threads of a block that parts share which would each choose their own: what those with partial results need,
    where other threads have nothing to do; else the most.
    """
    own = [p.split.threads for p in parts if p.pattern.blocks is not None]
    return max(min(own) if own else max(p.split.threads for p in parts), 128)


RESIDENT_THREADS = 1024
"""Threads of a multiprocessor that a launch whose blocks wait for each other counts on: every GPU has room for them."""

ALONE_BYTES = 64 << 10
"""What one block moves in less time than all blocks take to wait for each other."""


def _residency(kernel: ScheduledKernel, device: Device) -> Residency:
    per = max(1, RESIDENT_THREADS // kernel.threads)
    per = max(1, min(per, device.shared_per_block_optin // max(kernel.shared_bytes, 1)))
    moved = [
        sum(node_bytes(kernel.graph[i]) for p in phase for i in (*p.pattern.inputs, *p.pattern.outputs))
        for phase in kernel.phases
    ]
    alone = len(moved)
    while alone > 1 and sum(moved[alone - 1 :]) <= ALONE_BYTES:
        alone -= 1
    if alone == 1:  # Nobody waits: any number of blocks will do.
        return Residency(sum(p.split.blocks for p in kernel.phases[0]), 1, alone)
    return Residency(per * device.multiprocessors, per, alone)


def _part(graph: Graph, pattern: Pattern, device: Device, threads: int | None) -> Part:
    if pattern.team is not None:
        return _team_part(pattern, pattern.team, device, threads, _is_wide(graph, pattern))
    if pattern.loop is not None:
        wide = _is_wide(graph, pattern) or any((level.trips or 0) >= 2**31 for level in pattern.loop.loops)
        return Part(pattern, loop_split(device, pattern.rows), (), {}, {}, 0, 0, ("thread",), {}, wide)
    shape = Shape(graph, pattern, row_index(pattern.rows))
    stages = stages_of(shape)
    stored = _stored_bindings(shape, stages)
    walks = [_walk_stage(shape, s, stored, ()) for s in stages]
    places = max((_places(shape, s) for s in stages), default=1)
    accesses = list(_accesses(shape, stages, walks))
    order = prefer(accesses) if places > 1 else Order.ROWS
    partials = [i for s in stages if isinstance(s, LoopStage) for i in s.partials]
    partial_places = max((shape.operand_elements(graph[i])[1] for i in partials), default=1)
    if partial_places > 1:
        order = Order.LANES
    period = run_length(accesses, ROW, pattern.rows) if device.kind == "cpu" and order is Order.ROWS else pattern.rows
    choice = partial(
        choose,
        device,
        pattern.rows,
        period,
        places,
        order,
        blocks=pattern.blocks,
        threads=threads,
        partial_places=partial_places,
    )
    split = choice()
    while _shared_too_large(shape, stages, split, device):
        split = choice(most_rows=split.rows_per_block // 2)
    row = row_index(pattern.rows, period)
    shape = Shape(graph, pattern, row)
    periods: dict[int, int] = {}
    if device.kind == "cpu" and order is Order.LANES:
        walks = [_walk_stage(shape, s, stored, ()) for s in stages]
        periods = _place_periods(shape, stages, walks)
        shape = Shape(graph, pattern, row, periods)
    storage, shared, scratch = _storage(shape, stages, split)
    stages, kept, shared = _keep(shape, stages, stored, split, device, shared, partials)
    return Part(
        pattern,
        split,
        stages,
        storage,
        kept,
        shared,
        scratch,
        _composition(stages, split, storage, kept),
        periods,
        wide=_is_wide(graph, pattern),
    )


def _team_part(pattern: Pattern, loop: TeamLoop, device: Device, threads: int | None, wide: bool) -> Part:
    team = team_schedule(loop, device, threads)
    split = Split(loop.rows, loop.rows, 1, team.threads, Order.LANES, 1, loop.rows)
    composition = ("thread", "block") if team.threads > 1 else ("thread",)
    wide = wide or loop.trips >= 2**31
    return Part(pattern, split, (), {}, {}, team.shared_bytes, 0, composition, {}, wide, team)


def _shared_too_large(shape: Shape, stages: Sequence[Stage], split: Split, device: Device) -> bool:
    """Whether a block that does fewer rows at a time would fit better into shared memory."""
    if device.kind == "cpu" or split.rows_per_block == 1:
        return False
    return _storage(shape, stages, split)[1] > device.shared_per_block_optin


MOST_NARROW = 2**31 - 2**20
"""Elements that 32-bit positions tell apart, with room for the threads past the end."""


def _is_wide(graph: Graph, pattern: Pattern) -> bool:
    """Whether positions need 64 bits: also those in values that are never in memory, which reshapes go by."""
    types = [graph[i].type for i in (*pattern.inside, *pattern.inputs)]
    return any(t.size > MOST_NARROW for t in types if isinstance(t, TensorType))


def _stored_bindings(shape: Shape, stages: Sequence[Stage]) -> dict[int, Binding]:
    """Bindings of everything that is kept for all threads of a row: results of reductions and values of whole rows."""
    found: dict[int, Binding] = {}
    graph, bindings = shape.graph, shape.pattern.bindings
    for s in stages:
        reduces: tuple[int, ...] = ()
        if isinstance(s, RowStage):
            found.update({i: bindings[i] for i in s.keeps})
        elif isinstance(s, LoopStage):
            reduces = s.reduces
        else:
            reduces = (s.reduce,)
        for r in reduces:
            found.update({i: bindings[r] for i in results_of(graph, graph[r]) if i >= 0})
    return found


def _places(shape: Shape, stage: Stage) -> int:
    if isinstance(stage, LoopStage):
        return stage.size
    if isinstance(stage, KeptReduceStage):
        return stage.kept
    return 1


def roots_of(shape: Shape, stage: Stage) -> Iterator[Element]:
    """The elements a stage evaluates, in terms of row and place."""
    graph = shape.graph
    if isinstance(stage, KeptReduceStage):
        index = shape.kept_elements(stage)
        for o in _reduced_operands(graph, stage.reduce):
            yield o, index
        return
    if isinstance(stage, RowStage):
        for i in (*stage.keeps, *stage.stores):
            yield i, shape.value_elements(i)[0]
        partials: tuple[int, ...] = stage.partials
    else:
        for i in stage.stores:
            yield i, shape.value_elements(i)[0]
        partials = (*stage.reduces, *stage.partials)
    for i in partials:
        index, _ = shape.operand_elements(graph[i])
        for o in _reduced_operands(graph, i):
            yield o, index


def _reduced_operands(graph: Graph, reduce: int) -> tuple[int, ...]:
    operands = graph[reduce].operands
    return operands[: len(operands) // 2]


def _walk_stage(shape: Shape, stage: Stage, stored: Mapping[int, Binding], kept: Sequence[Element]) -> Walk:
    """Everything a stage evaluates."""
    visited: dict[Element, bool] = {}
    loads: dict[Element, bool] = {}
    found: dict[Element, bool] = {}
    available = frozenset(kept)
    for root in roots_of(shape, stage):
        if root in available:
            found[root] = True
            continue
        w = walk(shape.graph, root, shape.pattern.inside, stored, shape.row, available)
        for all_, own in ((visited, w.visited), (loads, w.loads), (found, w.stored)):
            for e, always in own.items():
                all_[e] = all_.get(e, False) or always
    return Walk(visited, loads, found)


def _accesses(
    shape: Shape, stages: Sequence[Stage], walks: Sequence[Walk]
) -> Iterator[tuple[Index, tuple[int, ...], int]]:
    graph = shape.graph
    for s, w in zip(stages, walks, strict=True):
        for i, index in w.loads:
            yield index, graph[i].tensor.dims, node_bytes(graph[i])
        if not isinstance(s, KeptReduceStage):
            for i in s.stores:
                yield shape.value_elements(i)[0], graph[i].tensor.dims, node_bytes(graph[i])


def _place_periods(shape: Shape, stages: Sequence[Stage], walks: Sequence[Walk]) -> dict[int, int]:
    """For each number of places, the shortest run that lies in one piece in every buffer, if it fills vectors."""
    found: dict[int, int] = {}
    for s, w in zip(stages, walks, strict=True):
        size = _places(shape, s)
        run = run_length(_accesses(shape, [s], [w]), PLACE, size)
        found[size] = min(found.get(size, size), run)
    return {size: run for size, run in found.items() if run != size}


def _storage(shape: Shape, stages: Sequence[Stage], split: Split) -> tuple[dict[int, Storage], int, int]:
    """Where the values kept for all threads of a row live, the bytes of shared memory they take, and those of the
    reductions' scratch.
    """
    graph = shape.graph
    found: dict[int, Storage] = {}
    scratch = 0
    for s in stages:
        reduces = s.reduces if isinstance(s, LoopStage) else ()
        partials = s.partials if isinstance(s, RowStage) else ()
        for r in (*reduces, *partials):
            operands = [graph[o].tensor for o in _reduced_operands(graph, r)]
            width = sum(8 for _ in operands)
            if split.lanes > 32 or partials:
                scratch = max(scratch, 32 * width)
            if split.order is Order.ROWS and split.lanes > 1:
                scratch = max(scratch, split.threads * width)
    offset = _aligned(scratch)
    for s in stages:
        if isinstance(s, RowStage):
            for i in s.keeps:
                found[i] = Storage(i, Place.ROW, graph[i].tensor, 1)
        elif isinstance(s, LoopStage):
            for r in s.reduces:
                for i in results_of(graph, graph[r]):
                    if i >= 0:
                        found[i] = Storage(i, Place.ROW, graph[i].tensor, 1)
        else:
            results = results_of(graph, graph[s.reduce])
            for i in results:
                if i >= 0:
                    found[i] = Storage(i, Place.SHARED, graph[i].tensor, s.kept, offset)
            # All results of a reduction are one array of structures.
            offset += _aligned(split.rows_per_block * s.kept * 8 * len(results)) * (2 if s.in_runs else 1)
    return found, offset, scratch


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64


def _keep(
    shape: Shape,
    stages: tuple[Stage, ...],
    stored: Mapping[int, Binding],
    split: Split,
    device: Device,
    shared: int,
    partials: Sequence[int],
) -> tuple[tuple[Stage, ...], dict[Element, Storage], int]:
    """Values that several passes over the row need, kept where the first pass computed them (computation reuse, 2021
    paper, section 4.2).
    """
    graph = shape.graph
    kept: dict[Element, Storage] = {}
    registers = 0
    for i in partials:
        size = shape.operand_elements(graph[i])[1]
        index = shape.operand_elements(graph[i])[0]
        per_thread = ceil(size / split.lanes)
        storage = Storage(i, Place.REGISTERS, graph[i].tensor, size, 0, index)
        if (
            device.kind == "cuda" and registers + per_thread > MAX_KEPT_REGISTERS
        ) or per_thread > 2 * MAX_KEPT_PER_THREAD:
            storage = replace(storage, place=Place.OWN_SHARED, offset=shared)
            shared += _aligned(size * 8)
        else:
            registers += per_thread
        kept[(i, index)] = storage
    available: dict[int, dict[Element, None]] = {}
    first_stage: dict[Element, int] = {}
    uses: dict[int, list[Element]] = {}
    keeps: dict[int, list[Element]] = {}
    for k, s in enumerate(stages):
        if not isinstance(s, LoopStage):
            continue
        known = available.setdefault(s.size, {})
        hits = [e for e in _walk_stage(shape, s, stored, tuple(known)).stored if e in known]
        for e in hits:
            if e not in kept:
                own = _own_storage(graph, e, s.size, split, device, registers, shared)
                if own is None:
                    continue
                storage = own
                if storage.place is Place.REGISTERS:
                    registers += ceil(s.size / split.lanes) * (2 if storage.type.dtype in ("f64", "s64", "u64") else 1)
                else:
                    shared = storage.offset + _aligned(split.rows_per_block * s.size * 8)
                kept[e] = storage
                keeps.setdefault(first_stage[e], []).append(e)
            uses.setdefault(k, []).append(e)
        w = _walk_stage(shape, s, stored, ())
        for e, always in (*w.visited.items(), *w.loads.items()):
            if always and e not in known and _worth_keeping(graph, e, e in w.loads, device):
                known[e] = None
                first_stage[e] = k
    changed = tuple(
        replace(s, keeps=tuple(keeps.get(k, ())), uses=tuple(e for e in uses.get(k, ()) if e in kept))
        if isinstance(s, LoopStage)
        else s
        for k, s in enumerate(stages)
    )
    return changed, kept, shared


def _worth_keeping(graph: Graph, element: Element, is_load: bool, device: Device) -> bool:
    """On a GPU whatever depends on the place, on a CPU, where a second read comes from the cache, only what is costly
    to compute; nothing whose place is data, which only the operation that looks it up knows.
    """
    i, index = element
    node = graph[i]
    variables = {v.name for e in index for v in e.variables()}
    if not isinstance(node.type, TensorType) or not {PLACE, RUN} & variables or variables - {ROW, BATCH, PLACE, RUN}:
        return False
    if node.op in (PARTIAL, "reduce", "iota", "constant"):
        return False
    if device.kind == "cpu":
        return node.op in HEAVY
    return is_load or node.op != "broadcast"


def _own_storage(
    graph: Graph, element: Element, size: int, split: Split, device: Device, registers: int, shared: int
) -> Storage | None:
    i, index = element
    per_thread = ceil(size / split.lanes)
    if device.kind == "cpu":
        # Kept values must stay in the level-2 cache to be cheaper than computing them anew.
        if split.rows_per_block * size * 4 > device.shared_per_block_optin // 4:
            return None
        return Storage(i, Place.REGISTERS, graph[i].tensor, size, 0, index)
    if per_thread <= MAX_KEPT_PER_THREAD and registers + per_thread <= MAX_KEPT_REGISTERS:
        return Storage(i, Place.REGISTERS, graph[i].tensor, size, 0, index)
    if shared + split.rows_per_block * size * 8 <= device.shared_per_block:
        return Storage(i, Place.OWN_SHARED, graph[i].tensor, size, shared, index)
    return None


def _composition(
    stages: Sequence[Stage], split: Split, storage: Mapping[int, Storage], kept: Mapping[Element, Storage]
) -> tuple[str, ...]:
    reduces = any(isinstance(s, LoopStage) and s.reduces for s in stages)
    found = ["thread"]
    if reduces and split.order is Order.LANES and split.lanes > 1:
        found.append("warp")
    block = reduces and (split.lanes > 32 or (split.order is Order.ROWS and split.lanes > 1))
    if block or any(s.place is Place.SHARED for s in storage.values()):
        found.append("block")
    return tuple(found)
