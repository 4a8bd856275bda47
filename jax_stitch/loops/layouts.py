"""Sharing the places of a phase out over threads: by an estimate of the time that its reductions take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import ceil, prod

from jax_stitch.analysis import linearize, var
from jax_stitch.analysis.binding import inner_sizes, position_in
from jax_stitch.analysis.expr import Expr
from jax_stitch.analysis.locality import PLACE, row_index
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.terms import step_count, terms_of
from jax_stitch.devices import Device
from jax_stitch.ir.team import TeamLoop
from jax_stitch.loops.blocks import StepRead, block_clocks, block_layouts, is_plain
from jax_stitch.loops.phases import (
    BarrierGroup,
    Phase,
    Sharing,
    Target,
    barrier_groups,
    binding_of,
    index_at,
    reduce_terms,
)
from jax_stitch.loops.results import apart_clocks
from jax_stitch.loops.team import contraction, reach, step_of
from jax_stitch.operations import ELEMENTWISE, HEAVY

MOST_ACCUMULATORS = 8
"""Accumulators of one thread: with what they are computed from, they stay in registers."""

SQUARE_ACCUMULATORS = 16
"""The same where they are a square of places: what is read for one of its rows or columns serves the whole of it."""

FULL = 16
"""Lanes of a CPU's vector at most; each is loaded by itself where the operands are no neighbours."""

VECTOR_ACCUMULATORS = 16
"""Vectors of accumulators on a CPU: half of its registers."""

HEAVY_CLOCKS = 20
"""Of a warp in a division or a function."""

VECTOR_CLOCKS, SCALAR_CLOCKS = (0.5, 19.0), (0.5, 6.0)
"""What an operation takes a CPU, and what a division or a function takes: for a vector of places, and for one place
alone. Measured.
"""


UNROLLED, UNROLLED_RATE, ADDITION_CLOCKS = 128, 4, 4.0
"""Products of a phase of which a host compiler makes straight code, how many of them a clock does, and what each waits
for the one before in its sum.
"""


def team_threads(loop: TeamLoop, levels: Sequence[BarrierGroup], device: Device) -> int:
    """Threads of a block: one for each place of the largest phase, more where each has much to reduce."""
    if device.target.lanes_are_vectors:
        return 1
    most = device.warp_size
    for level in levels:
        for phase in level:
            steps = max((step_count(loop.body, r) for r in phase.reduces), default=1)
            most = max(most, ceil(prod(phase.sizes) * min(8, max(1, steps // 16)) / loop.blocks))
    found = 128
    while found < most and found < min(1024, device.threads_per_block):
        found *= 2
    return found


def best_layout(loop: TeamLoop, phase: Phase, threads: int, device: Device) -> Phase:
    """The phase with the layout whose reductions are estimated to take the least time."""
    if not phase.reduces:
        return replace(phase, sharing=Sharing(lane=len(phase.sizes) - 1))
    steps = max(step_count(loop.body, r) for r in phase.reduces)
    widest = max(map(len, passes(loop, phase, threads)))
    options = [*_options(phase, widest, steps, device), *_blocks(loop, phase, device)]
    taken = _taken(loop, phase, threads, device)
    return min((replace(phase, sharing=o) for o in options), key=lambda p: (taken(p), p.sharing.sums))


def _blocks(loop: TeamLoop, phase: Phase, device: Device) -> list[Sharing]:
    if not device.target.lanes_are_vectors or not phase.sizes or not is_plain(loop, phase.reduces):
        return []
    accesses = list(_step_reads(loop, phase))
    # A product of a value with itself reads one element.
    return block_layouts(phase, accesses, device) if len(accesses) == 2 * len(phase.reduces) else []


def _taken(loop: TeamLoop, phase: Phase, threads: int, device: Device) -> Callable[[Phase], float]:
    """What the reductions of a phase take in a layout; on a CPU pass after pass, each with its own steps, and what lies
    apart of what their results read and write.
    """
    turns = passes(loop, phase, threads)
    widest = max(map(len, turns))
    if not device.target.lanes_are_vectors:
        turns = [list(phase.reduces)]
    each = []
    for turn in turns:
        steps = max(step_count(loop.body, r) for r in turn)
        each.append((tuple(turn), list(_step_reads(loop, replace(phase, reduces=tuple(turn)))), steps))

    apart = apart_clocks(loop, phase) if device.target.lanes_are_vectors else ()

    def taken(p: Phase) -> float:
        results = apart[p.sharing.lane] if apart and p.sharing.split == 1 else 0.0
        return results + sum(
            _time(replace(p, reduces=turn), accesses, widest, steps, threads, device, loop.blocks)
            for turn, accesses, steps in each
        )

    return taken


def _options(phase: Phase, widest: int, steps: int, device: Device) -> Iterator[Sharing]:
    rank = len(phase.sizes)
    splits = [1]
    if device.target.lanes_are_vectors:
        splits += [device.warp_size] if steps >= device.warp_size else []
    else:
        splits += [s for s in (2, 4, 8, 16, 32) if s <= steps]
    if rank == 0:
        yield from (Sharing(split=s) for s in splits)
        return
    for lane, split in product(range(rank), splits):
        yield Sharing(lane, split=split)
        for tiled in range(rank):
            for tile in (2, 4, 8):
                fits = tile * widest <= MOST_ACCUMULATORS
                if tiled != lane and phase.sizes[tiled] % tile == 0 and fits:
                    yield Sharing(lane, tiled, tile, split)
    if not device.target.lanes_are_vectors:
        for lane, tiled, (tile, wide) in product(range(rank), range(rank), ((2, 2), (4, 2), (4, 4))):
            fits = tile * wide * widest <= SQUARE_ACCUMULATORS
            if tiled != lane and phase.sizes[tiled] % tile == 0 and phase.sizes[lane] % wide == 0 and fits:
                yield Sharing(lane, tiled, tile, 1, wide)


def _step_reads(loop: TeamLoop, phase: Phase) -> Iterator[StepRead]:
    """The reads of one step of the phase's reductions."""
    body, kept = loop.body, loop.kept
    row = row_index(loop.rows)
    digits = [var(f"d{k}", size) for k, size in enumerate(phase.sizes)]
    place = linearize(digits, phase.sizes)
    for r in phase.reduces:
        q = step_of(body, body[r])
        starts = terms_of(body, body[r], index_at(loop, binding_of(loop, r), place), q)
        found = reach(body, [e for e in starts if e[0] not in kept], kept, loop.arrays)
        for i, at in (*(e for e in starts if e[0] in kept), *found.stored):
            position = position_in(kept[i], row, at)
            assert position is not None and inner_sizes(kept[i]) is not None
            yield StepRead(tuple(_stride(position, v) for v in (*digits, q)), loop.blocks == 1)
        for i, at in found.loaded:
            address = linearize(at, body[i].tensor.dims)
            yield StepRead(tuple(_stride(address, v) for v in (*digits, q)), False, node_bytes(body[i]))


def _stride(address: Expr, variable: Expr) -> int | None:
    if variable.is_const:
        return 0
    ((atom, _),) = variable.terms
    if atom not in address.variables():
        return 0
    (found,) = [c for a, c in address.terms if a == atom] or [0]
    return None if atom in (address - variable * found).variables() else found


def clocks(loop: TeamLoop, phase: Phase, threads: int, device: Device) -> float:
    """The clocks that a team takes for a phase, about; ``threads`` are those of a block."""
    places = ceil(prod(phase.sizes) / loop.blocks)
    turns = ceil(places / (device.warp_size if device.target.lanes_are_vectors else threads))
    light, heavy = _operations(loop, phase, device)
    if device.target.lanes_are_vectors:
        each = SCALAR_CLOCKS if places == 1 else VECTOR_CLOCKS
        elementwise = (each[0] * light + each[1] * heavy) * turns
    else:
        elementwise = (light + HEAVY_CLOCKS * heavy) * turns * max(1, threads // 128)
    if not phase.reduces:
        return elementwise + (apart_clocks(loop, phase)[-1] if device.target.lanes_are_vectors and phase.sizes else 0.0)
    steps = max(step_count(loop.body, r) for r in phase.reduces)
    terms = _term_clocks(loop, phase, turns) if device.target.lanes_are_vectors else 0.0
    found = _taken(loop, phase, threads, device)(phase)
    products = prod(phase.sizes) * steps * len(phase.reduces)
    if device.target.lanes_are_vectors and products <= UNROLLED:
        found = min(found, max(ADDITION_CLOCKS * steps, products / UNROLLED_RATE))
    return elementwise + terms + found


def _term_clocks(loop: TeamLoop, phase: Phase, turns: int) -> float:
    """What a CPU takes to compute the terms of sums from what is kept and read, with ``turns`` vectors of places or
    vectors of steps.
    """
    body, found, split = loop.body, 0.0, phase.sharing.split
    for r in phase.reduces:
        starts = [e for e in reduce_terms(loop, r) if e[0] not in loop.kept]
        computed = reach(body, starts, loop.kept, loop.arrays).computed
        vectors = turns * step_count(loop.body, r)
        if split > 1:
            vectors = prod(phase.sizes) * ceil(step_count(loop.body, r) / split)
        each = [20.0 if body[i].op in HEAVY else 0.5 for i, _ in computed if body[i].op in ELEMENTWISE]
        found += vectors * sum(each)
    return found


@lru_cache(maxsize=64)
def _written(loop: TeamLoop) -> frozenset[int]:
    """The values that some phase of a loop stores."""
    writes = (w for level in barrier_groups(loop) for phase in level for w in phase.writes)
    return frozenset(w.slot for w in writes if w.target is Target.STORED)


def _operations(loop: TeamLoop, phase: Phase, device: Device) -> tuple[int, int]:
    """Instructions per place that the phase's writes take, about, and how many of them are divisions or functions."""
    starts = [(w.node, index_at(loop, w.binding, var(PLACE, prod(w.sizes)))) for w in phase.writes]
    here = {w.slot for w in phase.writes if w.target is Target.STORED}
    kept = {i: b for i, b in loop.kept.items() if i not in here}
    if device.target.lanes_are_vectors:
        # What nobody stores, since one phase makes and reads it, is computed there like the rest.
        kept = {i: b for i, b in kept.items() if i not in loop.stored or i in _written(loop)}
    outside = [e for e in starts if contraction(loop.body, e[0]) is None and e[0] not in kept]
    found = reach(loop.body, outside, {*kept, *(i for i in loop.stored if contraction(loop.body, i))}, loop.arrays)
    heavy = sum(loop.body[i].op in HEAVY for i, _ in found.computed)
    return 2 * len(starts) + len(found.loaded) + len(found.stored) + len(found.computed) - heavy, heavy


def _time(
    phase: Phase, accesses: list[StepRead], widest: int, steps: int, threads: int, device: Device, blocks: int
) -> float:
    """The clocks that a team takes for the reductions of a phase, about."""
    layout = phase.sharing
    sums = layout.sums * len(phase.reduces)
    items = prod(phase.sizes) // layout.sums
    each = ceil(steps / layout.split)
    if layout.chunk:
        stored = 4.0 * sums * ceil(phase.lanes / device.warp_size)
        return phase.runs * (steps * block_clocks(phase, accesses, device) + stored)
    if device.target.lanes_are_vectors:
        one = max(0.5 * sums, 4.0 / chunk_of(phase, widest)) + sum(_vector_loads(a, phase) for a in accesses)
        if layout.split > 1:
            return items * (each * one + 2.5 * layout.split * sums)
        return phase.runs * ceil(phase.lanes / device.warp_size) * (each * one + 4.0 * sums)
    working = ceil(items * layout.split / blocks)
    active = min(threads, ceil(working / 32) * 32)
    one = active / 32 * (sums / 4 + sum(_warp_clocks(a, phase) for a in accesses))
    latency = 60.0 if any(not a.is_shared for a in accesses) else 8.0
    combine = 8.0 * sums * (layout.split.bit_length() - 1)
    return ceil(working / threads) * (each * max(one, latency) + combine) + 100.0


def chunk_of(phase: Phase, widest: int) -> int:
    """How many vectors a host compiler takes at a time: enough sums side by side to hide what one addition takes."""
    return max(1, min(VECTOR_ACCUMULATORS // (phase.sharing.tile * widest), ceil(phase.lanes / FULL)))


def chunk_width(phase: Phase, widest: int, vector: int) -> int:
    """How many places a host compiler takes at a time: all, or equal parts of them where there are any of about that
    size. It knows the number then, and keeps the sums in registers.
    """
    if phase.sharing.chunk:
        return phase.sharing.chunk
    most = vector * chunk_of(phase, widest)
    if phase.lanes <= most:
        return most
    equal = [w for w in range(most, most // 2, -1) if phase.lanes % w == 0]
    return equal[0] if equal else most


def passes(loop: TeamLoop, phase: Phase, threads: int) -> list[list[int]]:
    """The reductions of a phase that go through their steps together: all that have as many; on a CPU, where a pass is
    as fast as its registers are few, only those that read the same.
    """
    found: list[list[int]] = []
    for r in phase.reduces:
        own = set(loop.body[r].operands)
        for others in found:
            same = step_count(loop.body, others[0]) == step_count(loop.body, r)
            if same and (threads > 1 or any(own & set(loop.body[o].operands[:2]) for o in others)):
                others.append(r)
                break
        else:
            found.append([r])
    return found


def _tiles(access: StepRead, phase: Phase) -> int:
    """How often a thread reads for its tile."""
    layout = phase.sharing
    rows = layout.tile if layout.tile > 1 and access.strides[layout.tiled] != 0 else 1
    return rows * (layout.wide if layout.wide > 1 and access.strides[layout.lane] != 0 else 1)


def _vector_loads(access: StepRead, phase: Phase) -> float:
    along = access.strides[-1] if phase.sharing.split > 1 or not phase.sizes else access.strides[phase.sharing.lane]
    lanes = FULL if phase.sharing.split > 1 else min(FULL, phase.lanes)
    one = 2.0 * lanes if along is None or abs(along) > 1 else (0.25 if along == 0 else 0.5)
    return one * _tiles(access, phase)


def _warp_clocks(access: StepRead, phase: Phase) -> float:
    """Clocks of one multiprocessor for a warp's read: of its sectors through the level-2 cache, of its banks."""
    places = _warp_places(phase)
    if any(access.strides[d] is None and len({at[d] for at in places}) > 1 for d in range(len(access.strides))):
        return 4.0 * _tiles(access, phase)  # Somewhere.
    strides = [stride or 0 for stride in access.strides]
    addresses = {sum(d * stride for d, stride in zip(at, strides, strict=True)) for at in places}
    if access.is_shared:
        banks = Counter(a % 32 for a in addresses)
        return float(max(banks.values())) * _tiles(access, phase)
    sectors = {a // 8 for a in addresses}
    return max(1.0, len(sectors) / 2) * _tiles(access, phase)


def _warp_places(phase: Phase) -> tuple[tuple[int, ...], ...]:
    """What the threads of a warp read first: the digits of the domain, and the step."""
    layout, rank = phase.sharing, len(phase.sizes)
    lane = layout.lane % rank if rank else 0
    others = [d for d in range(rank) if d != lane]
    counts = [phase.sizes[d] // (layout.tile if d == layout.tiled and layout.tile > 1 else 1) for d in others]
    return _places(rank, layout.split, phase.lanes, tuple(counts), tuple(others), lane, layout.tiled, layout.tile)


@lru_cache(maxsize=1024)
def _places(
    rank: int,
    split: int,
    lanes: int,
    counts: tuple[int, ...],
    others: tuple[int, ...],
    lane: int,
    tiled: int,
    tile: int,
) -> tuple[tuple[int, ...], ...]:
    found = []
    for thread in range(min(32, prod(counts) * lanes * split)):
        place = thread // split
        digits = {lane: place % lanes} if rank else {}
        run = place // lanes
        for d, count in zip(reversed(others), reversed(counts), strict=True):
            digits[d] = run % count * (tile if d == tiled else 1)
            run //= count
        found.append((*(digits[d] for d in sorted(digits)), thread % split))
    return tuple(found)
