"""The choice of streams that become loops over tiles: those that teams are estimated to run faster than XLA."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.fusion.streams.body import packs
from jax_stitch.fusion.streams.exchanged import exchanged
from jax_stitch.fusion.streams.rewrite import streamed
from jax_stitch.fusion.streams.separation import first_sweep
from jax_stitch.fusion.streams.stream import Stream, depending, streams
from jax_stitch.fusion.streams.tiling import Tiling, tiling
from jax_stitch.graph.model import STREAMED, Graph, TensorType
from jax_stitch.loops.cost.xla_cost import work_seconds
from jax_stitch.loops.loop_patterns import bytes_in_teams, seconds_in_teams
from jax_stitch.loops.product_rows import HELD

TILE = 64
"""Elements of a tile along each axis at most: four such tiles of floats fill a quarter of a core's own cache, and sums
over so many steps hide the latency of what stands before and after them.
"""

MORE_LANES = 2
"""By what factor more elements a tile may have along its lanes where a block has memory of its own: what is copied
there serves all lanes.
"""

AROUND = 3
"""Calls of a loop over tiles that packs what it reads: of what arranges that, and of what else reads its results."""

MARGIN = 1.3
"""The factor by which a loop over tiles has to be estimated faster than XLA's kernels for the whole arrays."""

WIDE = 3
"""How many times as large as its factors a product has to be to be computed again, instead of written and read."""

MOST_LOOPS = 8
"""Loops at most that go through the same arrays."""


def with_streams(graph: Graph, device: Device) -> Graph:
    """Return the graph with the streams as loops that are faster so; with sums exchanged, where they are faster yet."""
    made, other = _streamed(graph, device), exchanged(graph)
    if other is graph:
        return made
    other = _streamed(other, device)
    taken, by_other = seconds(made, device), seconds(other, device)
    has_loops = any(STREAMED in n.attributes for n in other.nodes)
    return other if has_loops and taken is not None and by_other is not None and by_other < taken else made


def _streamed(graph: Graph, device: Device) -> Graph:
    """Return the graph with the streams as loops that are faster so."""
    refused: set[Hashable] = set()
    left: set[str] = {n.name for n in graph.nodes if n.op == "dot"}
    while (made := _faster(graph, device, refused, left)) is not None:
        graph = made
    return graph


def _faster(graph: Graph, device: Device, refused: set[Hashable], left: set[str]) -> Graph | None:
    """Return the graph with one more stream as a loop, and what else reads its arrays; None where none is faster so.
    Of streams that share products it is the one with which the graph is fastest. Streams like those that are
    ``refused`` are not tried, and only those that start from products that are ``left``: they may yet be taken.
    """
    best: tuple[float, Graph] | None = None
    taken, before = set[int](), None
    dots = {n.id: n.name for n in graph.nodes if n.op == "dot" and n.name in left}
    left.clear()
    for stream, tiles in _candidates(graph, device, dots):
        nodes = {key.node for key in (*stream.members, *stream.reductions) if graph[key.node].op == "dot"}
        if best is not None and taken.isdisjoint(nodes):
            left.add(dots[stream.start])
            continue
        if (like := (_signature(stream), tiles.lanes)) in refused:
            continue
        if not (stream.is_closed or _is_wide(stream)):
            left.add(dots[stream.start])
            continue
        made = streamed(stream, tiles, device)
        if _held_bytes(made, tiles, device) > device.shared_per_block_optin:
            refused.add(like)
            continue
        if not stream.is_closed:
            made = _with_readers(made, _products(stream), device)
        before = seconds(graph, device) if before is None else before
        after = seconds(made, device)
        if before is None or after is None or after >= before:
            refused.add(like)
            continue
        left.add(dots[stream.start])
        if best is None or after < best[0]:
            best = after, made
            taken |= nodes
    return None if best is None else best[1]


def _candidates(graph: Graph, device: Device, dots: Collection[int]) -> Iterator[tuple[Stream, Tiling]]:
    """Yield the streams of a graph that may be loops, with tiles of each size: those that begin with some products."""
    factors = (1,) if device.target.lanes_are_vectors else (1, MORE_LANES)
    for found in streams(graph, dots):
        stream = first_sweep(found)
        if stream is None or not is_streamable(stream):
            continue
        for tiles in dict.fromkeys(tiling(stream, TILE, TILE * factor) for factor in factors):
            if tiles is not None:
                yield stream, tiles


def _held_bytes(graph: Graph, tiles: Tiling, device: Device) -> int:
    """Return the bytes that a tile of a graph's loops needs of a block's memory: all that a team caches; of a core's
    cache, in which other arrays lie too, those of the factors of the largest product, ``HELD`` times.
    """
    if not packs(device):
        return max((bytes_in_teams(graph, n, device) for n in graph.nodes if STREAMED in n.attributes), default=0)
    return HELD * _factor_bytes(graph, tiles)


def _factor_bytes(graph: Graph, tiles: Tiling) -> int:
    """Return the bytes of the factors of a tile's largest product, in the loops of a graph."""
    bodies = [n.graphs["body"] for n in graph.nodes if STREAMED in n.attributes]
    products = ([body[o] for o in n.operands] for body in bodies for n in body.nodes if n.op == "dot")
    return max((sum(node_bytes(o) // tiles.rows for o in factors) for factors in products), default=0)


def _with_readers(graph: Graph, products: set[str], device: Device) -> Graph:
    """Return the graph with all streams as loops that hold some of these products: those that an open stream leaves."""
    for _ in range(MOST_LOOPS):
        after = depending(graph, {n.id for n in graph.nodes if n.name in products})
        found = next((c for c in _candidates(graph, device, after) if not products.isdisjoint(_products(c[0]))), None)
        if found is None:
            break
        products |= _products(found[0])
        graph = streamed(*found, device)
    return graph


def _products(stream: Stream) -> set[str]:
    """Return the names of the products that a stream holds."""
    nodes = (stream.graph[m.node] for m in stream.members)
    return {n.name for n in nodes if n.op == "dot"}


def _signature(stream: Stream) -> Hashable:
    """Return what is equal for streams of equal layers."""
    nodes = (stream.graph[key.node] for key in (*stream.members, *stream.reductions))
    return tuple((n.op, n.type) for n in nodes)


def _is_wide(stream: Stream) -> bool:
    """Return whether products of a stream are so large beside their factors that computing them again may pay."""
    graph = stream.graph
    dots = (graph[m.node] for m in stream.members if graph[m.node].op == "dot")
    return all(n.tensor.size >= WIDE * sum(graph[o].tensor.size for o in n.operands) for n in dots)


def is_streamable(stream: Stream) -> bool:
    """Return whether a stream holds a product whose result nothing writes."""
    return any(stream.graph[m.node].op == "dot" for m in stream.members)


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
            total += MARGIN * taken + (AROUND if packs(device) else 1) * device.target.launch_seconds
    others = [n for n in graph.nodes if STREAMED not in n.attributes]
    kernels = {n.kernel for n in others if n.kernel}
    calls = len(kernels) * device.target.kernel_seconds
    return (
        total
        + calls
        + work_seconds(graph, others, device, by_tensor_cores=True)
        + _moved_bytes(graph, device) / device.memory_bandwidth
    )


def _moved_bytes(graph: Graph, device: Device) -> int:
    """Return the bytes of arrays that XLA's kernels write and others read, if no cache holds them. A GPU's level 2 is
    no faster than its memory: measured on an H200, 4.1 TB/s and 4.2.
    """
    moved, held = 0, device.l2_bytes if device.target.lanes_are_vectors else 0
    for n in graph.nodes:
        if n.kernel and isinstance(n.type, TensorType) and (size := node_bytes(n)) > held:
            readers = {graph[u].kernel for u in graph.users[n.id]} - {n.kernel}
            moved += size * (1 + len(readers)) if readers else 0
    return moved
