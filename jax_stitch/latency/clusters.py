"""From the latency-evaluator back to the scheduler: rows that clusters of blocks take where that is faster."""

from __future__ import annotations

from jax_stitch.devices import Device
from jax_stitch.latency.model import latency
from jax_stitch.schedule import ScheduledKernel, schedule
from jax_stitch.schedule.model import LoopStage
from jax_stitch.schedule.split import CLUSTERS

LEAST_PLACES = 8192
"""Of a row for which clusters are tried: the threads of one block have shorter ones in their registers."""

WORTH = 0.95
"""The share of a kernel's predicted time that it has to take in clusters, whose cost nobody has measured here."""


def in_clusters(kernel: ScheduledKernel, device: Device) -> ScheduledKernel:
    """The kernel laid out in clusters of the size that is predicted to take the least time; as it is where the device
    or the kernel has none, where they gain nothing, or where its user has asked for a schedule.
    """
    passes = [s for p in kernel.parts for s in p.stages if isinstance(s, LoopStage)]
    if device.cluster_blocks == 1 or kernel.asked or max((s.size for s in passes), default=0) < LEAST_PLACES:
        return kernel
    best, limit = kernel, WORTH * latency(kernel, device).seconds
    for blocks in CLUSTERS:
        patterns = [p.pattern for p in kernel.parts]
        other = schedule(kernel.graph, patterns, device, kernel.name, cluster=blocks)
        if other.cluster < blocks:
            break
        seconds = latency(other, device).seconds
        if seconds < limit:
            best, limit = other, seconds
    return best
