"""Clocks of what a step of a team's reduction reads: vectors on a CPU, a warp's addresses on a GPU."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import prod

from jax_stitch.analysis.patterns.chunks import FULL
from jax_stitch.analysis.patterns.sweeps import Sweep
from jax_stitch.loops.teams.blocks import StepRead


def _tiles(access: StepRead, sweep: Sweep) -> int:
    """Return the number of reads of a thread for its tile in one step."""
    sharing = sweep.sharing
    rows = sharing.tile if sharing.tile > 1 and access.strides[sharing.tiled] != 0 else 1
    return rows * (sharing.wide if sharing.wide > 1 and access.strides[sharing.lane] != 0 else 1)


def vector_loads(access: StepRead, sweep: Sweep) -> float:
    """Return the clocks of a CPU for the vectors that a step of a reduction reads."""
    along = access.strides[-1] if sweep.sharing.split > 1 or not sweep.sizes else access.strides[sweep.sharing.lane]
    lanes = sweep.sharing.split if sweep.sharing.split > 1 else min(FULL, sweep.lanes)
    one = 1.25 * lanes if along is None or abs(along) > 1 else (0.25 if along == 0 else 0.5)
    return one * _tiles(access, sweep)


def warp_clocks(access: StepRead, sweep: Sweep) -> float:
    """Return the clocks of a multiprocessor for a warp's read, by its bank conflicts or its sectors in level 2."""
    places = _warp_places(sweep)
    if any(access.strides[d] is None and len({at[d] for at in places}) > 1 for d in range(len(access.strides))):
        return 4.0 * _tiles(access, sweep)  # The addresses have no constant stride.
    strides = [stride or 0 for stride in access.strides]
    addresses = {sum(d * stride for d, stride in zip(at, strides, strict=True)) for at in places}
    if access.is_shared:
        banks = Counter(a % 32 for a in addresses)
        return float(max(banks.values())) * _tiles(access, sweep)
    sectors = {a // 8 for a in addresses}
    return max(1.0, len(sectors) / 2) * _tiles(access, sweep)


def _warp_places(sweep: Sweep) -> tuple[tuple[int, ...], ...]:
    """Return the first coordinates of each thread of a warp: the digits of its place, and the reduced step."""
    sharing, rank = sweep.sharing, len(sweep.sizes)
    lane = sharing.lane % rank if rank else 0
    others = [d for d in range(rank) if d != lane]
    counts = [sweep.sizes[d] // (sharing.tile if d == sharing.tiled and sharing.tile > 1 else 1) for d in others]
    return _places(rank, sharing.split, sweep.lanes, tuple(counts), tuple(others), lane, sharing.tiled, sharing.tile)


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
    points = []
    for thread in range(min(32, prod(counts) * lanes * split)):
        place = thread // split
        digits = {lane: place % lanes} if rank else {}
        run = place // lanes
        for d, count in zip(reversed(others), reversed(counts), strict=True):
            digits[d] = run % count * (tile if d == tiled else 1)
            run //= count
        points.append((*(digits[d] for d in sorted(digits)), thread % split))
    return tuple(points)
