"""Kernel packing: patterns that do not depend on each other share one launch (2018 paper, "intra-layer"; 2021 paper,
"kernel packing").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.reach import Reach, bits, members_of
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import XlaKernels
from jax_stitch.fusion.launches.buffers import buffers_fit, buffers_of, most_buffers
from jax_stitch.fusion.launches.grid_composition import compose
from jax_stitch.fusion.launches.quotient import launched, quotient
from jax_stitch.graph.model import Graph

Kernel = tuple[Pattern, ...]


def pack(
    graph: Graph,
    origins: XlaKernels,
    chosen: Sequence[Pattern],
    small: Sequence[Pattern],
    loops: Sequence[Pattern],
    device: Device,
) -> tuple[Kernel, ...]:
    """Group patterns into kernels: those that can run between the same library calls, then those that only memory keeps
    apart.

    ``chosen`` patterns are kernels by themselves too; ``small`` ones only pay together with others, and are left to XLA
    where they find none. ``loops`` stay kernels by themselves, and are not among the result. No two patterns are packed
    beside which a launch costs next to nothing.
    """
    patterns = [*chosen, *small]
    small_graph, at = quotient(graph, [p.nodes for p in (*patterns, *loops)])
    rounds = _rounds(small_graph, at[: len(patterns)])
    reach = apart = Reach(small_graph)
    is_large = [_is_large(graph, p, device) for p in patterns]
    groups: dict[int, list[list[int]]] = defaultdict(list)
    used: dict[int, set[int]] = {}
    """The buffers of each group, by its first pattern."""
    for k in sorted(range(len(patterns)), key=lambda k: at[k]):
        here = groups[rounds[at[k]]]
        mine = buffers_of([patterns[k]])
        for group in here:
            ours = used[group[0]]
            if len(ours | mine) > most_buffers(device) or sum(map(is_large.__getitem__, (*group, k))) > 1:
                continue
            places = [at[g] for g in group]
            before = reach.all_before(places) & reach.all_after([at[k]])
            after = reach.all_after(places) & reach.all_before([at[k]])
            if (before | after) & ~reach.bits_of(places[0]) & ~reach.bits_of(at[k]):
                continue
            reach = reach.contracted([*places, at[k]])
            group.append(k)
            ours |= mine
            break
        else:
            here.append([k])
            used[k] = mine
    packed = [[patterns[k] for k in group] for here in groups.values() for group in here]
    between = quotient(graph, [*([i for p in k for i in p.nodes] for k in packed), *(p.nodes for p in loops)])
    kept = worthwhile(compose(packed, *between, device), origins, set(map(id, small)))
    place = {id(p): i for p, i in zip(patterns, at, strict=False)}
    return tuple(piece for kernel in kept for piece in _unbroken(kernel, [place[id(p)] for p in kernel], apart))


def _unbroken(kernel: Kernel, at: Sequence[int], reach: Reach) -> list[Kernel]:
    """Return a kernel, cut where something else stands between its patterns: one that it has not kept. ``at`` are their
    nodes in the graph of ``reach``.
    """
    inside = bits(at)
    between = reach.all_after(at) & reach.all_before(at) & ~inside
    if not between:
        return [kernel]
    after = reach.all_after(list(members_of(between)))
    unbroken: list[Kernel] = []
    for late in (False, True):
        chosen = [k for k, i in enumerate(at) if bool(after >> i & 1) is late]
        unbroken += _unbroken(tuple(kernel[k] for k in chosen), [at[k] for k in chosen], reach)
    return unbroken


def _rounds(graph: Graph, launches: Collection[int]) -> list[int]:
    """Return when each node can run at the earliest, if all ``launches`` that can run without waiting for anything but
    each other are one, and so are those that can after what reads their results, and so on.

    There are no more such rounds than launches in a row with something else between each and the next, so that no plan
    of these launches has fewer.
    """
    ours = set(launches)
    rounds: list[int] = []
    for node in graph.nodes:
        waits = [rounds[o] + (node.id in ours and o not in ours) for o in node.operands]
        rounds.append(max(waits, default=int(node.id in ours)))
    return rounds


def pack_loops(graph: Graph, loops: Sequence[Pattern], kernels: Sequence[Kernel], device: Device) -> tuple[Kernel, ...]:
    """Return loops as kernels, those in teams of a block that do not depend on each other together: the two directions
    of a recurrent net. ``kernels`` are the others.
    """
    small_graph, at = launched(graph, [*kernels, *([p] for p in loops)])
    at = at[len(kernels) :]
    reach = Reach(small_graph)
    groups: list[list[int]] = []
    for k, loop in enumerate(loops):
        for group in groups:
            teams = [p.loop for p in (loop, loops[group[0]])]
            if not device.target.packs_launches or not all(
                isinstance(team, TeamLoop) and team.blocks == 1 for team in teams
            ):
                continue
            places = [at[g] for g in group]
            if not reach.connected(places, [at[k]]) and buffers_fit([*(loops[g] for g in group), loop], device):
                reach = reach.contracted([*places, at[k]])
                group.append(k)
                break
        else:
            groups.append([k])
    return tuple(tuple(loops[k] for k in group) for group in groups)


def worthwhile(groups: Sequence[Sequence[Pattern]], origins: XlaKernels, small: set[int]) -> tuple[Kernel, ...]:
    """Return the groups less those small patterns that would only cut a kernel of XLA in two, and less groups that save
    no launch.
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


def _is_large(graph: Graph, pattern: Pattern, device: Device) -> bool:
    """Return whether a launch costs little beside a pattern's bytes; elementwise patterns pack well in any size, since
    each block works alone.
    """
    moved = sum(node_bytes(graph[i]) for i in (*pattern.inputs, *pattern.outputs))
    is_elementwise = pattern.blocks is None and not _has_reduce(pattern)
    return not is_elementwise and moved / device.memory_bandwidth >= 8 * device.target.launch_seconds


def _has_reduce(pattern: Pattern) -> bool:
    return any(sum(f.size for dim in b for f in dim if f.stride is None) for b in pattern.bindings.values())
