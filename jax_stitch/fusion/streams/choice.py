"""The choice of regions that become loops over tiles: those that teams are estimated to run faster than XLA."""

from __future__ import annotations

from jax_stitch.devices import Device
from jax_stitch.fusion.streams.region import Region, regions
from jax_stitch.fusion.streams.rewrite import streamed
from jax_stitch.fusion.streams.separation import forms, separable
from jax_stitch.fusion.streams.tiling import tiling
from jax_stitch.graph.model import STREAMED, Graph, Node
from jax_stitch.loops.loop_patterns import runs_in_teams
from jax_stitch.loops.xla_cost import work_seconds

TILE = 64
"""Elements of a tile along each axis at most: four such tiles of floats fill a quarter of a core's own cache, and sums
over so many steps hide the latency of what stands before and after them.
"""

AROUND = 3
"""Calls that arrange what a loop over tiles reads, and that finish what it returns."""


def with_streams(graph: Graph, device: Device) -> Graph:
    """Return the graph with the regions as loops that are faster so."""
    while (made := _next(graph, device)) is not None:
        graph = made
    return graph


def _next(graph: Graph, device: Device) -> Graph | None:
    """Return the graph with one more region as a loop, or None."""
    for region in regions(graph):
        if not is_streamable(region) or not separable(region, forms(region)):
            continue
        tiles = tiling(region, TILE)
        if tiles is None:
            continue
        made = streamed(region, tiles, _seconds(region, device))
        if made is not None and runs_in_teams(made, _last(made), device):
            return made
    return None


def is_streamable(region: Region) -> bool:
    """Return whether a region holds a product and reductions of it."""
    return any(region.graph[m.node].op == "dot" for m in region.members) and len(region.reductions) > 1


def _seconds(region: Region, device: Device) -> float:
    """Return the seconds that XLA takes for a region, less those of the calls around the loop in its place."""
    nodes = dict.fromkeys(key.node for key in (*region.members, *region.reductions))
    kernels = {region.graph[i].kernel for i in nodes}
    work = work_seconds(region.graph, [region.graph[i] for i in nodes], device)
    return work + len(kernels) * device.target.kernel_seconds - AROUND * device.target.launch_seconds


def _last(graph: Graph) -> Node:
    return [n for n in graph.nodes if STREAMED in n.attributes][-1]
