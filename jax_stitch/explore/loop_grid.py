"""Loops in teams joined with the kernels around them: what is made for a loop, the loop, and what is made of its
results are phases of one launch (see ``grid``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from jax_stitch.devices import Device
from jax_stitch.explore import region
from jax_stitch.explore.binding import rows_of
from jax_stitch.explore.cost import node_bytes
from jax_stitch.explore.grid import compose, in_phases
from jax_stitch.explore.packing import Kernel, pack_loops
from jax_stitch.explore.pattern import Pattern
from jax_stitch.explore.reach import Reach
from jax_stitch.explore.support import ELEMENTWISE, is_free, reason_unsupported
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.indexing.maps import MOVES


def with_loops(graph: Graph, loops: Sequence[Pattern], kernels: Sequence[Kernel], device: Device) -> tuple[Kernel, ...]:
    """All kernels of a graph: ``kernels``, and those of ``loops``, joined where a loop in teams reads what another
    writes or the other way round.
    """
    packed = pack_loops(graph, loops, [_nodes(k) for k in kernels], device)
    teams = [kernel for kernel in packed if _has_team(kernel)]
    if device.kind != "cuda" or not teams:
        return (*kernels, *packed)
    alone = [kernel for kernel in packed if not _has_team(kernel)]
    around = _around(graph, teams, [*kernels, *alone])
    groups = [*kernels, *teams, *([p] for p in around)]
    joined = compose(graph, groups, [p for kernel in alone for p in kernel], device)
    found = [in_phases(group) if _has_team(group) else tuple(group) for group in joined]
    # What found no loop stays with XLA.
    small = {p.nodes for p in around}
    return (*(k for k in found if not all(p.nodes in small for p in k)), *alone)


def _nodes(kernel: Sequence[Pattern]) -> frozenset[int]:
    return frozenset(i for p in kernel for i in p.nodes)


def _has_team(kernel: Sequence[Pattern]) -> bool:
    return any(p.team is not None for p in kernel)


def _around(graph: Graph, teams: Sequence[Kernel], others: Sequence[Kernel]) -> list[Pattern]:
    """A pattern for each of XLA's kernels of single elements that a loop reads from, or that reads from a loop."""
    patterns = [p for kernel in (*teams, *others) for p in kernel]
    covered = {i for p in patterns for i in p.nodes}
    written = {i for p in patterns for i in p.outputs}
    touching = {i for kernel in teams for p in kernel for i in p.inputs}
    touching |= {u for kernel in teams for p in kernel for i in p.outputs for u in graph.users[i]}
    kernels: dict[str, set[int]] = defaultdict(set)
    for n in graph.nodes:
        if n.id not in covered and n.kernel and not is_free(n):
            kernels[n.kernel].add(n.id)
    found: list[Pattern] = []
    reach = Reach(graph, [p.nodes for p in patterns])
    for members in kernels.values():
        if members & touching and (pattern := _pattern(graph, members, reach)) is not None:
            if all(i in written or i not in covered for i in pattern.inputs):
                found.append(pattern)
    return found


def _pattern(graph: Graph, members: Collection[int], reach: Reach) -> Pattern | None:
    """One of XLA's kernels as a pattern whose rows are its elements; ``None`` where that leaves some of it out."""
    for i in members:
        if graph[i].op not in ELEMENTWISE | MOVES or reason_unsupported(graph, graph[i]) is not None:
            return None
    largest = max(members, key=lambda i: node_bytes(graph[i]))
    assert isinstance(graph[largest].type, TensorType)
    dims = graph[largest].tensor.dims
    binding, rows = rows_of(dims, range(len(dims))), graph[largest].tensor.size
    bound = region.bind(graph, largest, binding, rows, members)
    pattern = region.form(graph, bound, rows, members, reach)
    return pattern if pattern is not None and pattern.nodes == members else None
