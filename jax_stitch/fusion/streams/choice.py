"""The choice of regions that become loops over tiles: those that teams are estimated to run faster than XLA."""

from __future__ import annotations

from collections.abc import Collection

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.fusion.streams.exchanged import exchanged
from jax_stitch.fusion.streams.region import Region, regions
from jax_stitch.fusion.streams.rewrite import streamed
from jax_stitch.fusion.streams.separation import first_sweep
from jax_stitch.fusion.streams.tiling import tiling
from jax_stitch.graph.model import STREAMED, Graph, TensorType
from jax_stitch.loops.loop_patterns import seconds_in_teams
from jax_stitch.loops.xla_cost import work_seconds

TILE = 64
"""Elements of a tile along each axis at most: four such tiles of floats fill a quarter of a core's own cache, and sums
over so many steps hide the latency of what stands before and after them.
"""

AROUND = 3
"""Calls that arrange what a loop over tiles reads, and that finish what it returns."""

MARGIN = 1.1
"""The factor by which a loop over tiles has to be estimated faster than XLA's kernels for the whole arrays."""

MOST_LOOPS = 64
"""Loops of one graph at most."""


def with_streams(graph: Graph, device: Device) -> Graph:
    """Return the graph with the regions as loops that are faster so; with sums exchanged, where they are faster yet."""
    made, other = _streamed(graph, device), exchanged(graph)
    if other is graph:
        return made
    other = _streamed(other, device)
    taken, by_other = seconds(made, device), seconds(other, device)
    has_loops = any(STREAMED in n.attributes for n in other.nodes)
    return other if has_loops and taken is not None and by_other is not None and by_other < taken else made


def _streamed(graph: Graph, device: Device) -> Graph:
    """Return the graph with the regions as loops that are faster so."""
    refused: set[frozenset[str]] = set()
    while (found := _next(graph, refused)) is not None:
        region, made = found
        if not region.is_closed:
            made = _with_all(made)
        before, after = seconds(graph, device), seconds(made, device)
        if after is not None and before is not None and after < before:
            graph = made
        else:
            refused.add(_names(region))
    return graph


def _next(graph: Graph, refused: Collection[frozenset[str]]) -> tuple[Region, Graph] | None:
    """Return a region that may be streamed, and the graph in which it is; None where there is no other one."""
    for found in regions(graph):
        region = first_sweep(found)
        if region is None or not is_streamable(region) or _names(region) in refused:
            continue
        tiles = tiling(region, TILE)
        if tiles is not None:
            return region, streamed(region, tiles)
    return None


def _with_all(graph: Graph) -> Graph:
    """Return the graph with all of its regions as loops: what reads one that is open may be another."""
    for _ in range(MOST_LOOPS):
        found = _next(graph, ())
        if found is None:
            break
        graph = found[1]
    return graph


def _names(region: Region) -> frozenset[str]:
    return frozenset(region.graph[r.node].name for r in region.reductions)


def is_streamable(region: Region) -> bool:
    """Return whether a region holds a product whose result nothing writes."""
    return any(region.graph[m.node].op == "dot" for m in region.members)


def seconds(graph: Graph, device: Device) -> float | None:
    """Return the estimated seconds of a graph's loops over tiles, and of XLA for all else; None where no team runs a
    loop.
    """
    total = 0.0
    for loop in graph.nodes:
        if STREAMED in loop.attributes:
            taken = seconds_in_teams(graph, loop, device)
            if taken is None:
                return None
            total += MARGIN * taken + AROUND * device.target.launch_seconds
    others = [n for n in graph.nodes if STREAMED not in n.attributes]
    kernels = {n.kernel for n in others if n.kernel}
    calls = len(kernels) * device.target.kernel_seconds
    return total + calls + work_seconds(graph, others, device) + _moved_bytes(graph, device) / device.memory_bandwidth


def _moved_bytes(graph: Graph, device: Device) -> int:
    """Return the bytes of arrays that XLA's kernels write and others read, if no cache holds them."""
    moved = 0
    for n in graph.nodes:
        if n.kernel and isinstance(n.type, TensorType) and (size := node_bytes(n)) > device.l2_bytes:
            readers = {graph[u].kernel for u in graph.users[n.id]} - {n.kernel}
            moved += size * (1 + len(readers)) if readers else 0
    return moved
