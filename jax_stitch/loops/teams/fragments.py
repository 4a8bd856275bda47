"""Products of tiles by a GPU's tensor cores: how a team's warps share them out, and the clocks that they take.

A warp holds fragments of 16 by 8 sums, and multiplies fragments of factors that its threads read from shared memory
(PTX ISA, "Warp-level matrix instructions: mma"). Factors are taken as they are: what rounds them to the type that the
tensor cores multiply is an operation of the loop's body, done where a factor is cached or where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from jax_stitch.analysis.patterns.sweeps import Sharing, Sweep
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.terms import step_count
from jax_stitch.devices import Device
from jax_stitch.devices.tensor_cores import MatrixUnit
from jax_stitch.kernel.skewed_rows import SKEWS, conflicts, factor
from jax_stitch.loops.teams.blocks import StepRead
from jax_stitch.loops.teams.team import made_by

ROWS, COLUMNS = 16, 8
"""Places of a fragment of sums."""

THREADS = 256
"""Threads of a team with such products: each scheduler of a multiprocessor has two warps of it, whose registers hold
up to eight fragments of sums each, and there is room for other teams that do something else meanwhile.
"""

HELD = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (2, 4))
"""Fragments of a warp: 32 registers of sums at most."""

MOST_STEPS = 256
"""Terms of a sum that are added up in one go, for accuracy."""

LATENCY = 35.0
"""Clocks of a step, from the loads of factors to the next step's. Measured by others for ``mma.sync`` alone: 33."""


def unit_of(loop: TeamLoop, reduce: int, device: Device) -> MatrixUnit | None:
    """Return the tensor cores that compute a product of cached factors that are rounded for them; None for others."""
    body, node = loop.body, loop.body[reduce]
    if node.op != "dot" or step_count(body, reduce) > MOST_STEPS:
        return None
    rounded = [body[made_by(body, o)] for o in node.operands]
    unit = device.matrix_unit(rounded[0].tensor.dtype)
    if unit is None or step_count(body, reduce) % unit.steps:
        return None
    for n in rounded:
        bits = n.attributes.get("exponent_bits"), n.attributes.get("mantissa_bits")
        if n.op != "reduce-precision" or bits != unit.bits:
            return None
        if not {n.id, made_by(body, n.operands[0])} & loop.cached.keys():
            return None
    return unit


def fragment_sharings(loop: TeamLoop, sweep: Sweep, reads: Sequence[StepRead], device: Device) -> Iterator[Sharing]:
    """Yield the ways in which warps share out a sweep of products, whose factors are read like ``reads``: two each."""
    units = [unit_of(loop, r, device) for r in sweep.reduces]
    if None in units or len(sweep.sizes) != 2 or len(reads) != 2 * len(sweep.reduces):
        return
    for lane in (0, 1):
        if not all(_are_apart(reads[k : k + 2], lane) for k in range(0, len(reads), 2)):
            continue
        for rows, columns in HELD:
            if sweep.sizes[1 - lane] % (ROWS * rows) == 0 and sweep.sizes[lane] % (COLUMNS * columns) == 0:
                yield Sharing(lane, fragments=(rows, columns))


def _are_apart(pair: Sequence[StepRead], lane: int) -> bool:
    """Return whether one factor of a product changes along the lanes alone, the other along the runs alone."""
    if not all(read.is_shared for read in pair):
        return False
    along = [tuple(s != 0 for s in read.strides[:2]) for read in pair]
    return sorted(along) == [(False, True), (True, False)] and None not in (s for read in pair for s in read.strides)


def fragment_clocks(loop: TeamLoop, sweep: Sweep, reads: Sequence[StepRead], threads: int, device: Device) -> float:
    """Return the clocks of a multiprocessor for a team's products by tensor cores, about."""
    rows, columns = sweep.sharing.fragments
    runs, lanes = sweep.sizes[1 - sweep.sharing.lane], sweep.sizes[sweep.sharing.lane]
    tiles = (runs // (ROWS * rows)) * (lanes // (COLUMNS * columns))
    turns, total = ceil(32 * tiles / threads), 0.0
    for k, r in enumerate(sweep.reduces):
        unit = unit_of(loop, r, device)
        assert unit is not None
        pair = reads[2 * k : 2 * k + 2]
        left, right = sorted(pair, key=lambda read: read.strides[sweep.sharing.lane] != 0)
        lane = sweep.sharing.lane
        loads = 4 * rows * _loads(left, 1 - lane, unit) + 2 * columns * _loads(right, lane, unit)
        multiplying = rows * columns * ROWS * COLUMNS * unit.steps / (unit.rate * unit.share)
        steps = step_count(loop.body, r) // unit.steps
        total += steps * max(tiles * max(loads, multiplying), turns * LATENCY)
    return total + 100.0


def _loads(read: StepRead, dim: int, unit: MatrixUnit) -> int:
    """Return the clocks in which a warp reads a register's share of a fragment, with rows skewed as is best for it."""
    access = factor(read.strides[dim] or 0, read.strides[-1] or 0, unit.steps)
    once = min(conflicts(access, skew) for skew in (SKEWS if access.rows_are_whole else (0,)))
    return once if read.strides[-1] == 1 else once * (unit.steps // 8)  # Two halves that lie apart are two loads.
