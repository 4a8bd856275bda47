"""Kernels that are predicted to take far longer than what XLA has for the same operations: they are left to XLA.

The delta-evaluator, which chose them, knows bytes and launches; the latency-evaluator, which reads the finished kernel,
knows on how few multiprocessors it does how much, and on a CPU what is read and written element by element. XLA on a
GPU is given the kernel's own instructions, spread over the device; on a CPU what its kernels are estimated to take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.frontend.capture.module import module_of
from jax_stitch.frontend.capture.traffic import KernelTraffic, traffic_of
from jax_stitch.fusion import FusionPlan
from jax_stitch.fusion.delta_evaluator import CALLS
from jax_stitch.fusion.pays import is_priced, xla_seconds_of
from jax_stitch.graph.model import Graph, Node
from jax_stitch.jit.tune.units import by_graph, units_of
from jax_stitch.jit.tune.without import without
from jax_stitch.latency import Latency, constants_of, latency
from jax_stitch.pipeline import Stitched, StitchedKernel
from jax_stitch.util.formatting import format_seconds

SLOWER = 1.5
"""By what factor a kernel has to be predicted slower: what XLA takes is that of kernels which waste nothing."""

SLOWER_ON_A_CPU = 2.5
"""The same on a CPU, where both times are estimates. Measured: kernels that are as fast as XLA's were predicted to take
up to 2.5 times as long; those that make a program 1.3 times as slow, 2.6 times and more.
"""

_AT_DATA = frozenset({"dynamic-slice", "gather"})
"""Operations that read elements at places that are data."""

NEAR_SECONDS, FAR_SECONDS = 1e-8, 1e-7
"""The most that XLA:CPU is assumed to need for such an element, so that no kernel is left to it on a guess: of an array
that a core's cache holds, and of another.
"""

LEAST_SECONDS = 5e-6
"""What a kernel has to be slower by."""


def without_slower(stitched: Stitched) -> Stitched:
    """Return ``stitched`` less the kernels that are predicted to be slower than XLA's."""
    if not stitched.kernels:
        return stitched
    by_name = {k.name: k for k in traffic_of(module_of(stitched.capture.text)).kernels}
    factor = SLOWER_ON_A_CPU if stitched.device.target.lanes_are_vectors else SLOWER
    reasons: dict[int, str] = {}
    known: dict[int, Latency] = {}
    for together in _together(stitched):
        for kernel in together:
            if id(kernel.source) not in known:
                known[id(kernel.source)] = latency(kernel.scheduled, stitched.device)
        latencies = [known[id(kernel.source)] for kernel in together]
        before, own = _by_xla(together, latencies, by_name, stitched.device), sum(taken.seconds for taken in latencies)
        if before is not None and own > factor * before and own > before + LEAST_SECONDS:
            times = f"{format_seconds(own)}, about {format_seconds(before)} by XLA"
            why = f"one kernel of it and its neighbours would be slower by prediction ({times})"
            reasons |= {kernel.number: why for kernel in together}
    rest = without(stitched, reasons)
    if not reasons:
        return rest
    note = f"{len(reasons)} kernels that are predicted slower than XLA's are left to it"
    return replace(rest, plan=replace(rest.plan, notes=(*rest.plan.notes, note)))


def _together(stitched: Stitched) -> Iterator[tuple[StitchedKernel, ...]]:
    """Yield kernels that stay or go together: of several, one hands another the partial results of a reduction."""
    for graph, kernels in _graphs(stitched):
        for unit in units_of(graph, kernels):
            yield unit.kernels


def _graphs(stitched: Stitched) -> Iterator[tuple[Graph, Sequence[StitchedKernel]]]:
    own = by_graph(stitched.kernels)

    def of(plan: FusionPlan) -> Iterator[tuple[Graph, Sequence[StitchedKernel]]]:
        yield plan.graph, own.get(id(plan.graph), [])
        for child in plan.children.values():
            yield from of(child)

    return of(stitched.plan)


def _by_xla(
    kernels: Sequence[StitchedKernel], own: Sequence[Latency], by_name: Mapping[str, KernelTraffic], device: Device
) -> float | None:
    """Return seconds that XLA's kernels for the operations of one launch of each are predicted to take, each with the
    whole device for itself; ``None`` where bytes and instructions do not say.
    """
    graph, parts = kernels[0].scheduled.graph, [part for k in kernels for part in k.scheduled.parts]
    if device.target.lanes_are_vectors:
        return _by_xla_on_a_cpu(graph, tuple(part.pattern for part in parts), device)
    nodes = [graph[i] for i in dict.fromkeys(i for part in parts for i in part.pattern.nodes)]
    if any(part.pattern.loop is not None for part in parts) or len({k.launches for k in kernels}) > 1:
        return None
    names = {n.xla_kernel for n in nodes if n.xla_kernel}
    if not names or not names <= by_name.keys() or any(CALLS in n.attributes for n in nodes):
        return None
    launches = sum(by_name[name].launches for name in names) / kernels[0].launches
    moved = sum(by_name[name].bytes for name in names) / kernels[0].launches
    # Taken out of the kernels, it reads at least what they do: where that has been rearranged, XLA's had less.
    whole = sum(_whole(kernel) for kernel in kernels)
    work = max(max(moved, whole) / device.memory_bandwidth, sum(_spread(taken, device) for taken in own))
    return launches * device.target.launch_seconds + work


def _by_xla_on_a_cpu(graph: Graph, patterns: tuple[Pattern, ...], device: Device) -> float | None:
    """Return the seconds of XLA's kernels for some operations on a CPU; ``None`` where they are not estimated."""
    nodes = {i for p in patterns for i in p.inside}
    if not is_priced(graph, patterns):
        return None
    return xla_seconds_of(graph, nodes, device) + sum(_at_data(graph, graph[i], device) for i in nodes)


def _at_data(graph: Graph, node: Node, device: Device) -> float:
    """Return the most seconds that an operation needs for reading at places that are data."""
    if node.op not in _AT_DATA:
        return 0.0
    is_near = node_bytes(graph[node.operands[0]]) <= device.shared_per_block_optin
    return node.tensor.size * (NEAR_SECONDS if is_near else FAR_SECONDS)


def _whole(kernel: StitchedKernel) -> int:
    """Return bytes of all that a kernel reads and writes, but partial results, which XLA has not."""
    graph, scheduled = kernel.scheduled.graph, kernel.scheduled
    return sum(node_bytes(graph[i]) for i in (*scheduled.inputs, *scheduled.outputs) if graph[i].op != PARTIAL)


def _spread(own: Latency, device: Device) -> float:
    """Return seconds that all multiprocessors together take to issue a kernel's instructions."""
    issue = constants_of(device).issue
    cycles = sum(p.warps * n * issue[name] for p in own.phases for name, n in p.instructions)
    return cycles / device.multiprocessors / (device.clock_ghz * 1e9)
