"""How many neighbouring places of a sweep a host compiler takes at a time."""

from __future__ import annotations

from math import ceil

from jax_stitch.analysis.patterns.sweeps import Sweep

FULL = 16
"""Lanes of a CPU's vector at most; each is loaded by itself where the operands are no neighbours."""

VECTOR_ACCUMULATORS = 16
"""Vectors of accumulators on a CPU: half of its registers."""

EVEN = 1.15
"""By what factor the largest piece of a divided sweep may be larger than if all were equal."""


def chunk_of(sweep: Sweep, widest: int) -> int:
    """Return how many vectors a host compiler takes at a time: enough sums side by side to hide what one addition
    takes.
    """
    return max(1, min(VECTOR_ACCUMULATORS // (sweep.sharing.tile * widest), ceil(sweep.lanes / FULL)))


def chunk_width(sweep: Sweep, widest: int, vector: int) -> int:
    """Return how many places a host compiler takes at a time: all, or equal parts of them where there are any of about
    that size. It knows the number then, and keeps the sums in registers. Of a divided sweep few enough to divide them.
    """
    return _divisible(sweep, sweep.sharing.chunk or _whole_width(sweep, widest, vector), vector)


def _whole_width(sweep: Sweep, widest: int, vector: int) -> int:
    most = vector * chunk_of(sweep, widest)
    if sweep.lanes <= most:
        return most
    equal = [w for w in range(most, most // 2, -1) if sweep.lanes % w == 0]
    return equal[0] if equal else most


def _divisible(sweep: Sweep, width: int, vector: int) -> int:
    """Return parts of ``width``, so that the pieces of a divided sweep are about equal; whole vectors."""
    pieces = sweep.sharing.pieces
    if pieces == 1 or _unevenness(sweep, width) <= EVEN:
        return width
    vectors = ceil(min(width, sweep.lanes) / vector)
    widths = [ceil(vectors / parts) * vector for parts in range(2, 2 * pieces + 1)]
    return min(widths, key=lambda w: (max(EVEN, _unevenness(sweep, w)), -w))


def _unevenness(sweep: Sweep, width: int) -> float:
    """Return by what factor the largest piece is larger than if all were equal."""
    units = sweep.runs * ceil(sweep.lanes / width)
    largest = ceil(units / sweep.sharing.pieces) * min(width, sweep.lanes)
    return largest * sweep.sharing.pieces / (sweep.runs * sweep.lanes)
