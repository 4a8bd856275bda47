"""Kernels of straight code on a CPU that are estimated slower than XLA's for the same operations: they are left to it.

The search goes by bytes and launches. A processor computes too, and not all functions as fast in our kernels as in
XLA's: what a kernel saves of one may be less than it loses of the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.maps import MOVES
from jax_stitch.analysis.new_pages import saved_on_results
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.devices import Device
from jax_stitch.fusion.calls import straight_seconds
from jax_stitch.fusion.delta_evaluator import CALLS, effective_bytes
from jax_stitch.fusion.launches.packing import Kernel
from jax_stitch.graph.model import Graph
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.cost.xla_cost import is_windowed, work_seconds

_PRICED = ELEMENTWISE | MOVES | {"broadcast", "constant", "iota", "reduce", PARTIAL, "get-tuple-element"}

CLEARLY = 1.5
"""The factor by which a kernel has to be estimated slower than XLA's to be left to it: about the error of the estimates
of 22 small programs.
"""

SHARED_BYTES = 1 << 19
"""The fewest bytes of a kernel that XLA:CPU shares out over its cores."""


def paying(graph: Graph, kernels: Collection[Kernel], device: Device) -> tuple[Kernel, ...]:
    """Return the kernels but those of priced operations alone that are estimated clearly slower than XLA's. One that
    hands another partial results of a reduction stays: XLA has nothing in its place.
    """
    if not device.target.lanes_are_vectors:
        return tuple(kernels)
    return tuple(k for k in kernels if _is_needed(graph, k) or not _is_slower(graph, k, device))


def _is_needed(graph: Graph, kernel: Kernel) -> bool:
    return not is_priced(graph, kernel) or any(graph[i].op == PARTIAL for p in kernel for i in p.inside)


def _is_slower(graph: Graph, kernel: Kernel, device: Device) -> bool:
    own, xla = seconds_of_both(graph, kernel, device)
    return own > CLEARLY * xla


def is_priced(graph: Graph, kernel: Kernel) -> bool:
    """Return whether a kernel has only operations whose work is estimated: loops were judged as such, and of scans,
    sorts and gathers nothing is known but bytes.
    """
    ops = {graph[i].op for p in kernel for i in p.inside}
    return all(p.loop is None for p in kernel) and ops <= _PRICED


def seconds_of_both(graph: Graph, kernel: Kernel, device: Device) -> tuple[float, float]:
    """Return the seconds of a kernel of straight code, and those of XLA's kernels for the same operations."""
    own = device.target.launch_seconds + sum(own_seconds(graph, p, device) for p in kernel)
    own -= sum(saved_on_results(graph, p.nodes, device) for p in kernel)
    return own, xla_seconds_of(graph, {i for p in kernel for i in p.inside}, device)


def own_seconds(graph: Graph, pattern: Pattern, device: Device) -> float:
    """Return the seconds of a pattern of straight code, by its bytes or by its operations, whichever are more."""
    return max(effective_bytes(graph, pattern) / device.memory_bandwidth, straight_seconds(graph, pattern, device))


def xla_seconds_of(graph: Graph, nodes: Collection[int], device: Device) -> float:
    """Return the seconds of the kernels that XLA has for these operations."""
    groups: dict[str, set[int]] = defaultdict(set)
    for i in nodes:
        if graph[i].kernel and not is_rematerializable(graph[i]):
            groups[graph[i].kernel].add(i)
    total = 0.0
    for group in groups.values():
        reads = {o for i in group for o in graph[i].operands if not is_rematerializable(graph[o])} - group
        writes = {i for i in group if i in graph.result_set or any(u not in group for u in graph.users[i])}
        moved = sum(node_bytes(graph[i]) for i in reads | writes)
        cores = device.multiprocessors if moved >= SHARED_BYTES else 1
        work = work_seconds(graph, [graph[i] for i in group], device) / cores
        launches = 1 + sum(graph[i].op == "reduce" and is_windowed(graph, graph[i]) for i in group)
        launches += sum(graph[i].attributes.get(CALLS, 0) for i in group)
        total += launches * device.target.launch_seconds + max(moved / device.memory_bandwidth, work)
    return total
