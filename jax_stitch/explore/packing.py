"""Kernel packing: patterns that do not depend on each other share one launch (2018 paper, "intra-layer"; 2021 paper,
"kernel packing").
"""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.devices import Device
from jax_stitch.explore.buffers import buffers_fit, buffers_of, most_buffers
from jax_stitch.explore.cost import LAUNCH_SECONDS, Origins, node_bytes
from jax_stitch.explore.grid import compose
from jax_stitch.explore.pattern import Pattern
from jax_stitch.explore.quotient import quotient
from jax_stitch.explore.reach import Reach
from jax_stitch.graph.model import Graph

Kernel = tuple[Pattern, ...]


def pack(
    graph: Graph,
    origins: Origins,
    chosen: Sequence[Pattern],
    small: Sequence[Pattern],
    loops: Sequence[Pattern],
    device: Device,
) -> tuple[Kernel, ...]:
    """Groups patterns into kernels: those that are independent, then those that only memory keeps apart.

    ``chosen`` patterns are kernels by themselves too; ``small`` ones only pay together with others, and are left to XLA
    where they find none. ``loops`` stay kernels by themselves, and are not among the result. Independent patterns are
    packed where the time that a launch costs matters beside the time their bytes take.
    """
    groups: list[list[Pattern]] = [[p] for p in chosen]
    pending = [*small] if device.kind == "cuda" else []
    groups += [[p] for p in pending]
    worth = [_seconds(graph, g, device) < 8 * LAUNCH_SECONDS[device.kind] or _same_kind(g) for g in groups]
    small_graph, at = quotient(graph, [*map(_nodes, groups), *(p.nodes for p in loops)])
    reach = Reach(small_graph)
    buffers = [buffers_of(group) for group in groups]
    merged: list[list[Pattern]] = []
    taken = [False] * len(groups)
    for k, group in enumerate(groups):
        if taken[k]:
            continue
        together, places, used = list(group), [at[k]], set(buffers[k])
        near = reach.all_before(places) | reach.all_after(places)
        if worth[k] and device.kind == "cuda":
            for other in range(k + 1, len(groups)):
                if taken[other] or not worth[other] or near & reach.bits_of(at[other]):
                    continue
                if len(used | buffers[other]) > most_buffers(device):
                    continue
                together += groups[other]
                places.append(at[other])
                used |= buffers[other]
                near |= reach.all_before([at[other]]) | reach.all_after([at[other]])
                taken[other] = True
        if len(places) > 1:
            reach = reach.contracted(places)
        merged.append(together)
    return worthwhile(compose(graph, merged, loops, device), origins, set(map(id, pending)))


def pack_loops(
    graph: Graph, loops: Sequence[Pattern], others: Sequence[frozenset[int]], device: Device
) -> tuple[Kernel, ...]:
    """Loops as kernels, those in teams that do not depend on each other together: the two directions of a recurrent
    net. ``others`` are the nodes of other kernels.
    """
    groups: list[list[Pattern]] = []
    for k, loop in enumerate(loops):
        rest = [*others, *(p.nodes for p in loops[k + 1 :])]
        for n, group in enumerate(groups):
            if device.kind != "cuda" or loop.team is None or group[0].team is None:
                continue
            reach = Reach(graph, [*rest, *(_nodes(g) for g in groups), loop.nodes])
            if not reach.connected(_nodes(group), loop.nodes) and buffers_fit([*group, loop], device):
                groups[n] = [*group, loop]
                break
        else:
            groups.append([loop])
    return tuple(map(tuple, groups))


def worthwhile(groups: Sequence[Sequence[Pattern]], origins: Origins, small: set[int]) -> tuple[Kernel, ...]:
    """The groups less those small patterns that would only cut a kernel of XLA in two, and less groups that save no
    launch.
    """
    kept = [list(g) for g in groups]
    while True:
        gone = origins.whole({i for g in kept for p in g for i in p.nodes})
        before = sum(map(len, kept))
        for g in kept:
            g[:] = [
                p
                for p in g
                if id(p) not in small or {origins.of(i) for i in p.nodes if origins.of(i)[0] != "%"} <= gone
            ]
            if g and all(id(p) in small for p in g) and len(origins.whole(_nodes(g))) < 2:
                g.clear()
        if sum(map(len, kept)) == before:
            return tuple(tuple(g) for g in kept if g)


def _nodes(group: Sequence[Pattern]) -> frozenset[int]:
    return frozenset(i for p in group for i in p.nodes)


def _seconds(graph: Graph, group: Sequence[Pattern], device: Device) -> float:
    return sum(node_bytes(graph[i]) for p in group for i in (*p.inputs, *p.outputs)) / device.memory_bandwidth


def _same_kind(group: Sequence[Pattern]) -> bool:
    """Elementwise patterns: unlike sizes pack well, since each block works alone."""
    return all(p.blocks is None and not any(_has_reduce(p) for p in group) for p in group)


def _has_reduce(pattern: Pattern) -> bool:
    return any(sum(f.size for dim in b for f in dim if f.stride is None) for b in pattern.bindings.values())
