"""How a launch of several phases fits the device, and which of its phases the last block does."""

from __future__ import annotations

from math import inf

from jax_stitch.analysis.patterns.nest import Nest
from jax_stitch.analysis.patterns.traffic import MOST_LAST_BLOCK_BYTES, moved_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph
from jax_stitch.schedule.model import Part, Residency, ScheduledKernel

LOOP_BLOCKS = 2
"""Blocks of loops in threads that share a multiprocessor: each thread may use as many registers as there are."""

RESIDENT_THREADS = 1024
"""Threads of a multiprocessor that a launch whose blocks wait for each other counts on: every GPU has room for them."""

STATIC_BYTES = 128
"""Shared memory of a block that the runtime has for itself, at the most: whether it is the last to arrive."""


def residency(kernel: ScheduledKernel, device: Device, together: int | None) -> Residency:
    """Return the residency of a kernel whose blocks wait for each other, or one of which comes last; ``together`` is
    how many blocks a multiprocessor may hold at the most, for the sake of their registers.
    """
    per = max(1, RESIDENT_THREADS // kernel.threads)
    if any(isinstance(p.pattern.loop, Nest) for p in kernel.parts):
        per = LOOP_BLOCKS
    if any(p.spread for p in kernel.parts):  # The fewer meet, the sooner.
        per = 1
    per = per if together is None else min(per, together)
    per = max(1, min(per, device.blocks_with_shared(kernel.shared_bytes + STATIC_BYTES)))
    sizes = [sum(moved(kernel.graph, p) for p in phase) for phase in kernel.phases]
    last_block_from = len(sizes)
    while last_block_from > 1 and sum(sizes[last_block_from - 1 :]) <= MOST_LAST_BLOCK_BYTES:
        last_block_from -= 1
    if last_block_from == 1 and not any(p.spread for p in kernel.parts):  # Nobody waits: any number of blocks will do.
        return Residency(sum(p.blocks for p in kernel.phases[0]), per, last_block_from)
    return Residency(per * device.multiprocessors, per, last_block_from)


def moved(graph: Graph, part: Part) -> float:
    """Return bytes that a part reads and writes; of loops, whose rows one block would do in turn, no number is
    small.
    """
    if part.pattern.loop is not None and part.blocks > 1:
        return inf
    return moved_bytes(graph, part.pattern)
