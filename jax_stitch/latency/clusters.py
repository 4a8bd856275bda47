"""From the latency-evaluator back to the scheduler: long rows that clusters of blocks take, or that are copied to
shared memory, where that is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from jax_stitch.devices import Device
from jax_stitch.latency.model import latency
from jax_stitch.schedule import ScheduledKernel, schedule
from jax_stitch.schedule.fetched import fetched
from jax_stitch.schedule.model import LoopPass
from jax_stitch.schedule.split import CLUSTERS

LEAST_PLACES = 8192
"""Of a row for which clusters are tried: the threads of one block have shorter ones in their registers."""

WORTH = 0.95
"""The share of a kernel's predicted time that it has to take in clusters, whose cost nobody has measured here."""


def in_clusters(kernel: ScheduledKernel, device: Device) -> ScheduledKernel:
    """Return the kernel laid out in clusters of the size that is predicted to take the least time, or with rows fetched
    by bulk copies where that is predicted to take less; as it is where the device or the kernel has neither, where they
    gain nothing, or where its user has asked for a schedule.
    """
    loops = [s for p in kernel.parts for s in p.passes if isinstance(s, LoopPass)]
    if kernel.asked or max((s.size for s in loops), default=0) < LEAST_PLACES:
        return kernel
    others = list(_other_ways(kernel, device))
    alone = latency(kernel, device).seconds if others else 0.0
    best, limit = kernel, WORTH * alone
    for other in others:
        seconds = latency(other, device).seconds
        # Fewer sectors are asked for where rows are fetched: what that saves of the level-2 cache is not predicted.
        if seconds < (limit if other.cluster > 1 else alone):
            best, limit = other, min(limit, seconds)
    return best


def _other_ways(kernel: ScheduledKernel, device: Device) -> Iterator[ScheduledKernel]:
    """Yield the kernel's other schedules, of those that the device has; the one with fetched rows first."""
    again = partial(schedule, kernel.graph, [p.pattern for p in kernel.parts], device, kernel.name)
    if device.fetches_rows:
        other = again(fetch=True)
        if any(map(fetched, other.parts)):
            yield other
    for blocks in CLUSTERS if device.cluster_blocks > 1 else ():
        other = again(cluster=blocks)
        if other.cluster < blocks:
            return
        yield other
