"""Planning a graph: what the planner chooses, packed into launches, with what each kernel reads settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from jax_stitch.devices import Device
from jax_stitch.explore.apart import apart
from jax_stitch.explore.cost import Origins, node_bytes
from jax_stitch.explore.grid import in_phases, split_to_fit
from jax_stitch.explore.loop_grid import with_loops
from jax_stitch.explore.loop_patterns import prepared, stitched_loops
from jax_stitch.explore.packing import Kernel, pack
from jax_stitch.explore.pattern import Cut, FusionPlan, Pattern
from jax_stitch.explore.planners import PLANNERS, Outcome
from jax_stitch.explore.recompute import choose_reads
from jax_stitch.explore.support import reason_left
from jax_stitch.explore.thread_loops import ThreadLoops
from jax_stitch.graph.model import Graph, Node
from jax_stitch.planner_names import PlannerName


def explore(graph: Graph, device: Device, planner: PlannerName = PlannerName.BEAM) -> FusionPlan:
    """Chooses the patterns of ``graph`` (and of the computations it calls) that are worth a stitched kernel on
    ``device``.
    """
    plans = PLANNERS[planner]
    loops = ThreadLoops((), MappingProxyType({}))
    if plans.stitches_loops:
        graph = prepared(graph, device)
        loops = stitched_loops(graph, device)
    found = plans.choose(graph, loops, device)
    packed = _packed(found, device) if plans.packs else found.groups
    chosen_reads = _with_reads(found.graph, packed, found.loops, device)
    kernels = tuple(piece for kernel in chosen_reads for piece in split_to_fit(in_phases(kernel), device))
    whole = {i for p in found.loops for i in p.nodes}
    kernels = with_loops(found.graph, found.loops, kernels, device)
    children = {
        (node.id, name): _left_alone(called) if _is_in_cache(node, called, device) else explore(called, device, planner)
        for node in found.graph.nodes
        if node.op in ("while", "conditional", "call") and node.id not in whole
        for name, called in node.graphs.items()
    }
    return FusionPlan(found.graph, kernels, _cuts(found.graph, kernels, found.refused), children, found.notes)


def _packed(found: Outcome, device: Device) -> tuple[Kernel, ...]:
    chosen = [piece for group in found.groups for p in group for piece in apart(found.graph, p)]
    return pack(found.graph, Origins(found.graph), chosen, found.small, found.loops, device)


def _is_in_cache(node: Node, body: Graph, device: Device) -> bool:
    """Whether all that an iteration works on stays in a core's cache: on a CPU XLA's calls then cost less than ours."""
    if device.kind != "cpu" or node.op != "while":
        return False
    return all(node_bytes(n) <= device.shared_per_block_optin for n in body.nodes if n.op not in ("parameter", "while"))


def _left_alone(graph: Graph) -> FusionPlan:
    reason = "the body of a loop whose values stay in the cache, where XLA's calls cost less"
    cuts = tuple(replace(c, reason=reason) for c in _cuts(graph, (), {}))
    return FusionPlan(graph, (), cuts, {})


def _with_reads(graph: Graph, packed: Sequence[Kernel], loops: Sequence[Pattern], device: Device) -> tuple[Kernel, ...]:
    """The kernels with what they read chosen, less the patterns that nobody reads from any more."""
    while True:
        chosen = iter(choose_reads(graph, [p for kernel in packed for p in kernel], loops, device))
        kernels = tuple(tuple(next(chosen) for _ in kernel) for kernel in packed)
        if all(p.outputs for kernel in kernels for p in kernel):
            return kernels
        kept = [
            [p for p, read in zip(*pair, strict=True) if read.outputs] for pair in zip(packed, kernels, strict=True)
        ]
        packed = tuple(tuple(kernel) for kernel in kept if kernel)


def _cuts(graph: Graph, kernels: Sequence[Kernel], loops: Mapping[int, str]) -> tuple[Cut, ...]:
    """Why each node outside all kernels is there."""
    inside = {i for kernel in kernels for p in kernel for i in p.nodes}
    products = {n.kernel for n in graph.nodes if n.kernel and n.op in ("dot", "convolution")}
    found: list[Cut] = []
    for node in graph.nodes:
        if node.id in inside or node.op in ("parameter", "constant", "iota", "get-tuple-element", "tuple"):
            continue
        reason = loops.get(node.id) or reason_left(graph, node)
        whose = "part of the kernel of a matrix product" if node.kernel in products else None
        found.append(Cut(node.id, reason or whose or "XLA already makes one kernel of it and its neighbours"))
    return tuple(found)
