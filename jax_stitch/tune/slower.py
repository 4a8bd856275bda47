"""Kernels for a GPU that are predicted to take far longer than what XLA has for the same operations: they are left to
XLA.

The delta-evaluator, which chose them, knows bytes and launches; the latency-evaluator, which reads the finished kernel,
knows on how few multiprocessors it does how much. XLA is given the kernel's own instructions, spread over the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.capture.module import module_of
from jax_stitch.capture.traffic import KernelTraffic, traffic_of
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import CALLS
from jax_stitch.latency import Latency, constants_of, latency
from jax_stitch.pipeline import Stitched, StitchedKernel
from jax_stitch.tune.without import without
from jax_stitch.util.formatting import format_seconds

SLOWER = 2.0
"""By what factor a kernel has to be predicted slower: what XLA takes is that of kernels which waste nothing."""

LEAST_SECONDS = 5e-6
"""What a kernel has to be slower by."""


def without_slower(stitched: Stitched) -> Stitched:
    """``stitched`` less the kernels that are predicted to be slower than XLA's; on a CPU all stay."""
    if stitched.device.target.lanes_are_vectors or not stitched.kernels:
        return stitched
    by_name = {k.name: k for k in traffic_of(module_of(stitched.capture.text)).kernels}
    reasons: dict[int, str] = {}
    known: dict[int, Latency] = {}
    for kernel in stitched.kernels:
        if id(kernel.source) not in known:
            known[id(kernel.source)] = latency(kernel.scheduled, stitched.device)
        before = _by_xla(kernel, known[id(kernel.source)], by_name, stitched.device)
        own = known[id(kernel.source)].seconds
        if before is None:
            continue
        if own > SLOWER * before and own > before + LEAST_SECONDS:
            times = f"{format_seconds(own)}, about {format_seconds(before)} by XLA"
            reasons[kernel.number] = f"one kernel of it and its neighbours would be slower by prediction ({times})"
    rest = without(stitched, reasons)
    if not reasons:
        return rest
    note = f"{len(reasons)} kernels that are predicted slower than XLA's are left to it"
    return replace(rest, plan=replace(rest.plan, notes=(*rest.plan.notes, note)))


def _by_xla(kernel: StitchedKernel, own: Latency, by_name: Mapping[str, KernelTraffic], device: Device) -> float | None:
    """Seconds that XLA's kernels for the operations of one launch are predicted to take, each with the whole device for
    itself; ``None`` where bytes and instructions do not say.
    """
    graph = kernel.scheduled.graph
    nodes = [graph[i] for part in kernel.scheduled.parts for i in part.pattern.nodes]
    if any(part.pattern.loop is not None for part in kernel.scheduled.parts):
        return None
    if any(graph[i].op == PARTIAL for i in (*kernel.scheduled.inputs, *kernel.scheduled.outputs)):
        return None  # One step of a reduction of which another kernel has the other.
    names = {n.xla_kernel for n in nodes if n.xla_kernel}
    if not names or not names <= by_name.keys() or any(CALLS in n.attributes for n in nodes):
        return None
    launches = sum(by_name[name].launches for name in names) / kernel.launches
    moved = sum(by_name[name].bytes for name in names) / kernel.launches
    # Taken out of the kernel, it reads at least what the kernel does: where that has been rearranged, XLA's had less.
    whole = sum(node_bytes(graph[i]) for i in (*kernel.scheduled.inputs, *kernel.scheduled.outputs))
    work = max(max(moved, whole) / device.memory_bandwidth, _spread(own, device))
    return launches * device.target.launch_seconds + work


def _spread(own: Latency, device: Device) -> float:
    """Seconds that all multiprocessors together take to issue a kernel's instructions."""
    issue = constants_of(device).issue
    cycles = sum(p.warps * n * issue[name] for p in own.phases for name, n in p.instructions)
    return cycles / device.multiprocessors / (device.clock_ghz * 1e9)
