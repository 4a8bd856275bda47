"""What a plan is predicted to take: the time its kernels and those left to XLA need to move their bytes, and launches.

Library calls are not counted: no planner changes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from jax_stitch.analysis.patterns.pattern import FusionPlan, Pattern
from jax_stitch.analysis.patterns.traffic import may_have_clusters, moved_bytes
from jax_stitch.analysis.sizes import is_of_one_number, node_bytes
from jax_stitch.analysis.support import is_library, is_rematerializable
from jax_stitch.devices import Device
from jax_stitch.fusion.columns import column_bytes, column_bytes_of_xla
from jax_stitch.fusion.delta_evaluator import (
    XlaKernels,
    bytes_alone,
    computed_bytes,
    effective_bytes,
    may_share_rows,
    more_launches,
)
from jax_stitch.fusion.launches.shared_calls import launch_seconds
from jax_stitch.fusion.piece import CALL, OUTSIDE
from jax_stitch.graph.model import Graph


class Prediction(Struct, frozen=True):
    """Of one call."""

    launches: int
    bytes: int
    seconds: float
    unstrided: float
    """Seconds if no memory were accessed with a stride: what launches, bytes and the blocks that are busy with them
    take; and on a CPU columns, which are measured.
    """

    def __add__(self, other: Prediction) -> Prediction:
        return Prediction(
            self.launches + other.launches,
            self.bytes + other.bytes,
            self.seconds + other.seconds,
            self.unstrided + other.unstrided,
        )

    def is_better_than(self, other: Prediction) -> bool:
        """Return whether it takes less time, and that not only because it has fewer strided accesses where it has both
        more launches and more bytes: those are counted, the time that strided accesses take is estimated.
        """
        counted = self.launches <= other.launches or self.bytes <= other.bytes
        return self.seconds < other.seconds and (counted or self.unstrided < other.unstrided)

    def times(self, trips: int) -> Prediction:
        """Return the cost of as many calls, one after the other."""
        return Prediction(self.launches * trips, self.bytes * trips, self.seconds * trips, self.unstrided * trips)


NOTHING = Prediction(0, 0, 0.0, 0.0)


def best_of(plans: Sequence[FusionPlan], device: Device) -> FusionPlan:
    """Return the plan that is predicted best; the first of those that none is better than."""
    best, known = plans[0], None
    for plan in plans[1:]:
        known = known or predicted(best, device)
        prediction = predicted(plan, device)
        if prediction.is_better_than(known):
            best, known = plan, prediction
    return best


def predicted(plan: FusionPlan, device: Device) -> Prediction:
    """Return the kernels of a plan and of the loops and branches in it that stay with XLA; a loop of unknown length
    counts as one trip.
    """
    total = _stitched(plan, device) + _left(plan, device)
    for (node, _), child in plan.children.items():
        total += predicted(child, device).times(plan.graph[node].attributes.get("trip_count", 1))
    return total


def predicted_left(plan: FusionPlan, device: Device) -> Prediction:
    """Return the kernels of a plan's graph, without what it calls, that stay with XLA."""
    return _left(plan, device)


def _stitched(plan: FusionPlan, device: Device) -> Prediction:
    graph = plan.graph
    launches = launch_seconds(graph, plan.kernels, device)
    total = Prediction(0, 0, launches, launches)
    for kernel in plan.kernels:
        phases = {p.phase for p in kernel}
        moved = 0
        seconds = unstrided = (len(phases) - 1) * device.target.phase_seconds
        together = may_have_clusters(graph, kernel)
        for phase in phases:
            patterns = [p for p in kernel if p.phase == phase]
            columns = [column_bytes(graph, p, device) for p in patterns]
            plain = [moved_bytes(graph, p) for p in patterns]
            strided = [effective_bytes(graph, p) + c for p, c in zip(patterns, columns, strict=True)]
            moved += sum(plain)
            plain = [m + c for m, c in zip(plain, columns, strict=True)]
            seconds += _together(graph, patterns, strided, device, together) / device.memory_bandwidth
            unstrided += _together(graph, patterns, plain, device, together) / device.memory_bandwidth
        total += Prediction(1, moved, seconds, unstrided)
    return total


def _together(graph: Graph, patterns: Sequence[Pattern], moved: Sequence[int], device: Device, clusters: bool) -> float:
    """Return bytes that the whole device moves in the time that patterns which share a launch take: together they need
    the memory and the multiprocessors, or one of them is last.
    """
    alone = [
        bytes_alone(graph, p, device, m, clusters and may_share_rows(graph, p))
        for p, m in zip(patterns, moved, strict=True)
    ]
    return max(sum(moved), sum(computed_bytes(graph, p.inside, device) for p in patterns), *alone)


def _left(plan: FusionPlan, device: Device) -> Prediction:
    """Return the kernels that XLA still has, for values that somebody reads."""
    graph = plan.graph
    taken = {i for kernel in plan.kernels for p in kernel for i in p.nodes}
    origins = XlaKernels(graph, taken)
    wanted = {*graph.results, *(i for kernel in plan.kernels for p in kernel for i in p.inputs)}
    # What lies around a piece reads from memory; a CPU's products, as measured, turn their operands as fast themselves.
    around = (OUTSIDE, CALL) if device.target.products_read_any_layout else ()
    for node in reversed(graph.nodes):
        is_reader = node.op in around or is_library(graph, node)
        if node.id not in taken and (node.id in wanted or is_reader):
            wanted |= set(node.operands)
    groups: dict[str, set[int]] = defaultdict(set)
    for node in graph.nodes:
        # What has no kernel is a bitcast; what is one number everywhere is made where it is read.
        is_there = node.id in wanted or node.op == CALL
        if node.kernel and is_there and node.id not in taken and not is_of_one_number(graph, node.id):
            groups[origins.of(node.id)].add(node.id)
    total = NOTHING
    for name, group in groups.items():
        made_elsewhere = {graph[i].operands[0] for i in group if graph[i].op == "get-tuple-element"}
        is_call = any(graph[i].op == CALL or is_library(graph, graph[i]) for i in group)
        if is_call or any(graph[i].op != "sort" for i in made_elsewhere):
            continue
        made = {
            o for i in group for o in graph[i].operands if is_rematerializable(graph[o]) or is_of_one_number(graph, o)
        }
        reads = {o for i in group for o in graph[i].operands} - group - made
        writes = {i for i in group if i in graph.result_set or any(origins.of(u) != name for u in graph.users[i])}
        moved = sum(node_bytes(graph[i]) for i in reads | writes)
        launches = 1 + more_launches(graph, group)
        busy = max(moved + column_bytes_of_xla(graph, group, device), computed_bytes(graph, group, device))
        seconds = busy / device.memory_bandwidth + launches * device.target.launch_seconds
        total += Prediction(launches, moved, seconds, seconds)
    return total
