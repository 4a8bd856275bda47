"""Distribution of the places of a sweep over threads, by an estimate of the time that its reductions take."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import ceil, prod

from jax_stitch.analysis.accesses import Element
from jax_stitch.analysis.binding import inner_sizes, position_in
from jax_stitch.analysis.contraction import contraction, step_of
from jax_stitch.analysis.patterns.chunks import chunk_of
from jax_stitch.analysis.patterns.sweeps import BarrierGroup, Sharing, Sweep, Target, binding_of, index_at, step_groups
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.results import Results
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.terms import step_count, terms_of
from jax_stitch.devices import Device
from jax_stitch.ir.indices import linearize, var
from jax_stitch.ir.indices.expr import Expr
from jax_stitch.ir.indices.variables import PLACE, row_index
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.cost.read_cost import vector_loads, warp_clocks
from jax_stitch.loops.cost.weights import EXTREMUM_CLOCKS, combiner_weight, is_extremum, own_weight, total, warp_weight
from jax_stitch.loops.teams.blocks import StepRead, block_clocks, block_sharings, is_plain
from jax_stitch.loops.teams.fragments import THREADS, fragment_clocks, fragment_sharings, unit_of
from jax_stitch.loops.teams.helped import divided, divided_clocks
from jax_stitch.loops.teams.results import apart_clocks
from jax_stitch.loops.teams.sweep_planner import barrier_groups
from jax_stitch.loops.teams.sweeps import reduce_terms, varying
from jax_stitch.loops.teams.team import reach
from jax_stitch.util.values import replace

MOST_ACCUMULATORS = 8
"""The most accumulators of one thread: they and their operands stay in registers."""

SQUARE_ACCUMULATORS = 16
"""The same for a square tile of places: a value read for one of its rows or columns serves all places in it."""

COMPUTED_ACCUMULATORS = 2
"""The same on a CPU where lanes go along the steps and each place has its own terms: two hide the latency of an
addition, and more only lengthen the text. An extremum's latency is twice as long: it takes all there are."""

HEAVY_CLOCKS = 20
"""Clocks of a warp for a division or a function."""

VECTOR_CLOCKS, SCALAR_CLOCKS, FIRST_CLOCKS = (0.35, 10.0), (0.5, 6.0), 0.15
"""Clocks of a CPU for a simple operation, and for a function: on a vector of places, and on one place alone; and by how
much longer a simple one takes on the first vector. Measured.
"""

FUNCTION_CLOCKS = 40.0
"""Latency of a function of a vector that other operations wait for."""

STEP_CLOCKS = 4.0
"""Clocks of one iteration of an inner loop beside its sweeps."""

JOINING_CLOCKS, JOINED_CLOCKS = 0.6, 2.0
"""Clocks of a CPU for each lane of a split sum, to add up its lanes, and for the latency of the last such sum. Measured
on products of a vector and rows of 24 to 128 elements.
"""

UNROLLED, UNROLLED_RATE, ADDITION_CLOCKS = 128, 4, 4.0
"""The most products of a sweep that a host compiler unrolls fully, how many of them run in a clock, and the latency of
each addition to their sum.
"""


def team_threads(loop: TeamLoop, groups: Sequence[BarrierGroup], device: Device) -> int:
    """Return the threads of a block: one for each place of the largest sweep, more where each reduces much."""
    if device.target.lanes_are_vectors:
        return 1
    if any(unit_of(loop, r, device) for group in groups for sweep in group for r in sweep.reduces):
        return THREADS
    most = device.warp_size
    for group in groups:
        for sweep in group:
            steps = max((step_count(loop.body, r) for r in sweep.reduces), default=1)
            most = max(most, ceil(prod(sweep.sizes) * min(8, max(1, steps // 16)) / loop.blocks))
    threads = 128
    while threads < most and threads < min(1024, device.threads_per_block):
        threads *= 2
    return threads


def shared_out(loop: TeamLoop, device: Device, threads: int | None = None) -> tuple[int, tuple[BarrierGroup, ...]]:
    """Return the threads of a team, these if they are given, and its sweeps, shared out over them."""
    return _shares.get(loop.body, (loop.inside, device, threads), lambda: _shared_out(loop, device, threads))


_shares: Results[tuple[Hashable, Device, int | None], tuple[int, tuple[BarrierGroup, ...]]] = Results()


def _shared_out(loop: TeamLoop, device: Device, threads: int | None) -> tuple[int, tuple[BarrierGroup, ...]]:
    plain = barrier_groups(loop)
    count = threads or team_threads(loop, plain, device)
    return count, tuple(tuple(_shared_sweep(loop, p, count, device) for p in group) for group in plain)


def _shared_sweep(loop: TeamLoop, sweep: Sweep, threads: int, device: Device) -> Sweep:
    best = best_sharing(loop, sweep, threads, device)
    return best if loop.pieces == 1 else divided(loop, best, clocks(loop, best, threads, device))


def best_sharing(loop: TeamLoop, sweep: Sweep, threads: int, device: Device) -> Sweep:
    """Return the sweep with the sharing whose reductions are estimated to take the least time."""
    if sweep.inner is not None:
        return sweep
    if not sweep.reduces:
        return replace(sweep, sharing=Sharing(lane=len(sweep.sizes) - 1))
    steps = max(step_count(loop.body, r) for r in sweep.reduces)
    widest = max(map(len, step_groups(loop, sweep, threads)))
    alone = device.target.lanes_are_vectors and _computes_each(loop, sweep)
    alone = alone and not all(is_extremum(loop.body[r]) for r in sweep.reduces)
    most = COMPUTED_ACCUMULATORS if alone else MOST_ACCUMULATORS
    options = [*_options(sweep, widest, steps, device, most), *_blocks(loop, sweep, device)]
    options += _in_fragments(loop, sweep, device)
    taken = _taken(loop, sweep, threads, device)
    return min((replace(sweep, sharing=o) for o in options), key=lambda p: (taken(p), p.sharing.sums))


def _blocks(loop: TeamLoop, sweep: Sweep, device: Device) -> list[Sharing]:
    if not device.target.lanes_are_vectors or not sweep.sizes or not is_plain(loop, sweep.reduces):
        return []
    accesses = list(_step_reads(loop, sweep))
    # A product of a value with itself reads one element.
    return block_sharings(sweep, accesses, device) if len(accesses) == 2 * len(sweep.reduces) else []


def _in_fragments(loop: TeamLoop, sweep: Sweep, device: Device) -> list[Sharing]:
    if any(unit_of(loop, r, device) is None for r in sweep.reduces):
        return []
    return list(fragment_sharings(loop, sweep, list(_step_reads(loop, sweep)), device))


def _taken(loop: TeamLoop, sweep: Sweep, threads: int, device: Device) -> Callable[[Sweep], float]:
    """Return a function of a sweep's sharing to the clocks of its reductions; on a CPU, group by group."""
    groups = step_groups(loop, sweep, threads)
    widest = max(map(len, groups))
    if not device.target.lanes_are_vectors:
        groups = [list(sweep.reduces)]
    each = []
    for group in groups:
        steps = max(step_count(loop.body, r) for r in group)
        each.append((tuple(group), list(_step_reads(loop, replace(sweep, reduces=tuple(group)))), steps))
    apart = apart_clocks(loop, sweep) if device.target.lanes_are_vectors else ()

    def taken(p: Sweep) -> float:
        results = apart[p.sharing.lane] if apart and p.sharing.split == 1 else 0.0
        return results + sum(
            _time(replace(p, reduces=group), accesses, widest, steps, threads, device, loop)
            for group, accesses, steps in each
        )

    return taken


def _computes_each(loop: TeamLoop, sweep: Sweep) -> bool:
    """Return whether the terms of some reduction are computed for each place by itself."""
    body = loop.body
    starts = [e for r in sweep.reduces for e in reduce_terms(loop, r) if e[0] not in loop.cached]
    computed = reach(body, starts, loop.cached, loop.arrays).computed
    each = ((i, v.name) for i, at in computed for e in at for v in e.variables())
    return any(body[i].op in ELEMENTWISE and name == PLACE for i, name in each)


def _options(sweep: Sweep, widest: int, steps: int, device: Device, most_split: int) -> Iterator[Sharing]:
    """Yield ways to share out a sweep; a thread has up to ``most_split`` accumulators of places that several share."""
    rank = len(sweep.sizes)
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
                fits = tile * widest <= (MOST_ACCUMULATORS if split == 1 else most_split)
                if tiled != lane and sweep.sizes[tiled] % tile == 0 and fits:
                    yield Sharing(lane, tiled, tile, split)
        if split > 1 and device.target.lanes_are_vectors:
            yield from _of_several_places(sweep, lane, split, most_split // widest)
    if not device.target.lanes_are_vectors:
        for lane, tiled, (tile, wide) in product(range(rank), range(rank), ((2, 2), (4, 2), (4, 4))):
            fits = tile * wide * widest <= SQUARE_ACCUMULATORS
            if tiled != lane and sweep.sizes[tiled] % tile == 0 and sweep.sizes[lane] % wide == 0 and fits:
                yield Sharing(lane, tiled, tile, 1, wide)


def _of_several_places(sweep: Sweep, lane: int, split: int, most: int) -> Iterator[Sharing]:
    """Yield ways for one thread to have several places along a factor, whose lanes go along the steps; and as many
    along another factor.
    """
    for wide in range(2, most + 1):
        if sweep.sizes[lane] % wide:
            continue
        yield Sharing(lane, split=split, wide=wide)
        for tiled, tile in product(range(len(sweep.sizes)), range(2, most // wide + 1)):
            if tiled != lane and sweep.sizes[tiled] % tile == 0:
                yield Sharing(lane, tiled, tile, split, wide)


def _step_reads(loop: TeamLoop, sweep: Sweep) -> Iterator[StepRead]:
    """Yield the reads of one step of the sweep's reductions."""
    body, cached = loop.body, loop.cached
    row = row_index(loop.rows)
    digits = [var(f"d{k}", size) for k, size in enumerate(sweep.sizes)]
    place = linearize(digits, sweep.sizes)
    for r in sweep.reduces:
        q = step_of(body, body[r])
        starts = terms_of(body, body[r], index_at(loop, binding_of(loop, r), place), q)
        reached = reach(body, [e for e in starts if e[0] not in cached], cached, loop.arrays)
        for i, at in (*(e for e in starts if e[0] in cached), *reached.cached):
            position = position_in(cached[i], row, at)
            assert position is not None and inner_sizes(cached[i]) is not None
            yield StepRead(tuple(_stride(position, v) for v in (*digits, q)), loop.blocks == 1)
        for i, at in reached.loaded:
            address = linearize(at, body[i].tensor.dims)
            strides = tuple(_stride(address, v) for v in (*digits, q))
            yield StepRead(strides, False, _bytes_read(loop, i, strides, (*sweep.sizes, step_count(body, r))))


def _bytes_read(loop: TeamLoop, array: int, strides: Sequence[int | None], counts: Sequence[int]) -> int:
    """Return the bytes of an array that one team reads in a sweep of an iteration."""
    whole = node_bytes(loop.body[array])
    read = prod(n for stride, n in zip(strides, counts, strict=True) if stride != 0)
    return min(whole, read * whole // max(1, loop.body[array].tensor.size))


def _stride(address: Expr, variable: Expr) -> int | None:
    if variable.is_const:
        return 0
    ((atom, _),) = variable.terms
    if atom not in address.variables():
        return 0
    (stride,) = [c for a, c in address.terms if a == atom] or [0]
    return None if atom in (address - variable * stride).variables() else stride


LEFT_OVER = 0.5
"""The part of a vector's clocks that an element after the last half vector of a run takes. Measured in runs of 2 to 12
elements with functions: 0.3 to 0.7.
"""


def clocks(loop: TeamLoop, sweep: Sweep, threads: int, device: Device) -> float:
    """Return the clocks that a team takes for a sweep, about; ``threads`` are those of a block."""
    return divided_clocks(sweep, _undivided_clocks(loop, sweep, threads, device))


def _undivided_clocks(loop: TeamLoop, sweep: Sweep, threads: int, device: Device) -> float:
    if sweep.inner is not None:
        return _inner_clocks(loop.inner[sweep.inner], device)
    places = ceil(prod(sweep.sizes) / loop.blocks)
    batches = _turns(sweep, places, device) if device.target.lanes_are_vectors else ceil(places / threads)
    light, heavy = _operations(loop, sweep, device)
    if device.target.lanes_are_vectors and places > 1 and sweep.sharing.split > 1:
        elementwise = places * (SCALAR_CLOCKS[0] * light + SCALAR_CLOCKS[1] * heavy)
    elif device.target.lanes_are_vectors:
        each = SCALAR_CLOCKS if places == 1 else VECTOR_CLOCKS
        first = FUNCTION_CLOCKS if places > 1 else each[1]
        elementwise = (each[0] * batches + FIRST_CLOCKS * (places > 1)) * light + max(each[1] * batches, first) * heavy
    else:
        elementwise = (light + HEAVY_CLOCKS * heavy) * batches * max(1, threads // 128)
    if not sweep.reduces:
        return elementwise + (apart_clocks(loop, sweep)[-1] if device.target.lanes_are_vectors and sweep.sizes else 0.0)
    steps = max(step_count(loop.body, r) for r in sweep.reduces)
    terms = _term_clocks(loop, sweep, batches, device) if device.target.lanes_are_vectors else 0.0
    reducing = _taken(loop, sweep, threads, device)(sweep)
    products = prod(sweep.sizes) * steps * len(sweep.reduces)
    if device.target.lanes_are_vectors and products <= UNROLLED:
        reducing = min(reducing, max(ADDITION_CLOCKS * steps, products / UNROLLED_RATE))
    return elementwise + terms + reducing


def _turns(sweep: Sweep, places: int, device: Device) -> float:
    """Return the turns of a CPU's vector units that go through ``places``: a run of them at a time, with half vectors
    and single elements at its end.
    """
    lanes, half = sweep.sizes[sweep.sharing.lane] if sweep.sizes else 1, device.warp_size // 2
    whole, rest = divmod(lanes, device.warp_size)
    whole *= device.clocks_per_vector
    return max(1.0, ceil(places / lanes) * (whole + rest // half + LEFT_OVER * (rest % half)))


@lru_cache(maxsize=64)
def _inner_clocks(loop: TeamLoop, device: Device) -> float:
    """Return the clocks of all iterations of an inner loop, and of copying its initial and final values."""
    sweeps = [s for group in shared_out(loop, device, 1)[1] for s in group]
    copied = sum(ceil(prod(inner_sizes(c.binding)) / device.warp_size) for c in loop.carried)
    one = STEP_CLOCKS + sum(clocks(loop, s, 1, device) for s in sweeps)
    return 2 * VECTOR_CLOCKS[0] * device.clocks_per_vector * copied + loop.likely_trips * one


def _term_clocks(loop: TeamLoop, sweep: Sweep, batches: float, device: Device) -> float:
    """Return the clocks of a CPU to compute the terms of sums from cached and loaded values, with ``batches`` turns of
    its vector units for the places, or vectors of steps.
    """
    body, split = loop.body, sweep.sharing.split
    longest: dict[Element, float] = {}
    for r in sweep.reduces:
        starts = [e for e in reduce_terms(loop, r) if e[0] not in loop.cached]
        vectors = batches * step_count(body, r)
        if split > 1:
            vectors = device.clocks_per_vector * prod(sweep.sizes) * ceil(step_count(body, r) / split)
        for element in reach(body, starts, loop.cached, loop.arrays).computed:  # what several sums need, once
            longest[element] = max(vectors, longest.get(element, 0))
    clocks_of_all = 0.0
    for (i, _), vectors in longest.items():
        if body[i].op in ELEMENTWISE:
            light, heavy = own_weight(body[i])
            clocks_of_all += vectors * (0.5 * light + VECTOR_CLOCKS[1] * heavy)
    return clocks_of_all


@lru_cache(maxsize=64)
def _written(loop: TeamLoop) -> frozenset[int]:
    """Return the intermediates that some sweep of a loop caches."""
    writes = (w for group in barrier_groups(loop) for sweep in group for w in sweep.writes)
    return frozenset(w.slot for w in writes if w.target is Target.INTERMEDIATE)


def cached_bytes(loop: TeamLoop) -> int:
    """Return about how many bytes a team caches: what one sweep computes and reads is in registers."""
    kept = (b for i, b in loop.cached.items() if i not in loop.intermediates or i in _written(loop))
    return sum(4 * prod(inner_sizes(binding)) for binding in kept)


def _operations(loop: TeamLoop, sweep: Sweep, device: Device) -> tuple[float, float]:
    """Return the instructions that a place of the sweep's writes takes: simple ones, and divisions or functions."""
    starts = [(w.node, index_at(loop, w.binding, var(PLACE, prod(w.sizes)))) for w in sweep.writes]
    here = {w.slot for w in sweep.writes if w.target is Target.INTERMEDIATE}
    cached = {i: b for i, b in loop.cached.items() if i not in here}
    if device.target.lanes_are_vectors:
        # An intermediate that no sweep caches, since one sweep computes and reads it, is computed there like the rest.
        cached = {i: b for i, b in cached.items() if i not in loop.intermediates or i in _written(loop)}
    outside = [e for e in starts if contraction(loop.body, e[0]) is None and e[0] not in cached]
    sums = {i for i in loop.intermediates if contraction(loop.body, i)}
    reached = reach(loop.body, outside, {*cached, *sums}, loop.arrays)
    if device.target.lanes_are_vectors:  # What moves elements is part of addresses there.
        computed = [n for i, _ in reached.computed if (n := loop.body[i]).op in ELEMENTWISE]
        light, heavy = total(own_weight, computed)
    else:
        computed = [n for i, _ in varying(loop.body, reached.computed) if (n := loop.body[i]).op in ELEMENTWISE]
        light, heavy = total(warp_weight, computed)
    return 2 * len(starts) + len(reached.loaded) + len(reached.cached) + light, heavy


def _time(
    sweep: Sweep, accesses: list[StepRead], widest: int, steps: int, threads: int, device: Device, loop: TeamLoop
) -> float:
    """Return the clocks that a team takes for the reductions of a sweep, about."""
    sharing = sweep.sharing
    sums = sharing.sums * len(sweep.reduces)
    items = prod(sweep.sizes) // sharing.sums
    each = ceil(steps / sharing.split)
    turns = device.clocks_per_vector
    if sharing.fragments:
        return fragment_clocks(loop, sweep, accesses, threads, device)
    if sharing.chunk:
        storing = 4.0 * turns * sums * ceil(sweep.lanes / device.warp_size)
        return sweep.runs * (steps * block_clocks(sweep, accesses, device) + storing)
    if device.target.lanes_are_vectors:
        loads = sum(vector_loads(a, sweep) for a in accesses)
        combining = 0.5 * sharing.sums * sum(combiner_weight(loop.body[r]) for r in sweep.reduces)
        one = max(combining, 4.0 / chunk_of(sweep, widest)) + loads
        if sharing.split > 1:
            if all(is_extremum(loop.body[r]) for r in sweep.reduces):
                one = max(combining, EXTREMUM_CLOCKS) + loads
            weights = sum(combiner_weight(loop.body[r]) for r in sweep.reduces)
            joining = JOINING_CLOCKS * sharing.split * sharing.sums * weights
            return turns * (items * (each * one + joining) + JOINED_CLOCKS * sharing.split)
        return turns * sweep.runs * ceil(sweep.lanes / device.warp_size) * (each * one + 4.0 * sums)
    working = ceil(items * sharing.split / loop.blocks)
    active = min(threads, ceil(working / 32) * 32)
    one = active / 32 * (sums / 4 + sum(warp_clocks(a, sweep) for a in accesses))
    latency = 60.0 if any(not a.is_shared for a in accesses) else 8.0
    combine = 8.0 * sums * (sharing.split.bit_length() - 1)
    return ceil(working / threads) * (each * max(one, latency) + combine) + 100.0
