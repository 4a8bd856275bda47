"""The plan of a function for a device: what stitching it does, or would do, there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax

from jax_stitch.backend.compile import Kernel, PtxKernel, target_of
from jax_stitch.backend.compile.host import stand_in
from jax_stitch.backend.compile.nvrtc import require
from jax_stitch.backend.launch import choice, host
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import Capture, Placement, capture, cuda_plugin_installed, lower
from jax_stitch.frontend.capture.errors import CudaPluginMissing, Unstitchable
from jax_stitch.frontend.capture.placement import partitioning
from jax_stitch.frontend.capture.traffic import KernelTraffic, Traffic, traffic
from jax_stitch.fusion import FusionPlan
from jax_stitch.graph.model import STREAMED, Node
from jax_stitch.inspect.explain import explain
from jax_stitch.inspect.report.plan import Boundary, KernelPlan, Launch, Plan
from jax_stitch.jit import stages
from jax_stitch.jit.stages.texts import stage_texts
from jax_stitch.jit.tune import stitch_and_tune
from jax_stitch.latency import Latency, latency
from jax_stitch.pipeline import Stitched, StitchedKernel
from jax_stitch.schedule.template import templates_of
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName


def placement_of(traced: jax.stages.Traced) -> Placement | None:
    """Return how XLA spreads the arguments and results of a function over devices; None if it runs on one.

    That is settled by compiling it, whatever device the plan is for.
    """
    lowered = traced.lower()
    count = lowered.compiler_ir("stablehlo").operation.attributes["mhlo.num_partitions"].value
    if count == 1:
        return None
    compiled = lowered.compile()
    shardings = [jax.tree.leaves(s) for s in (compiled.input_shardings, compiled.output_shardings)]
    arguments, results = (
        list(zip(own, avals, strict=True))
        for own, avals in zip(shardings, (traced.jaxpr.in_avals, traced.jaxpr.out_avals), strict=True)
    )
    devices = tuple(jax.devices()[:count])
    return partitioning(Placement(devices, ()), arguments, results).placement


def make_plan(
    fun: Callable[..., Any],
    args: Sequence[Any],
    device: Device,
    planner: PlannerName,
    placement: Placement | None = None,
    templates: str = "",
    autotune: Autotune = Autotune.OFF,
    donated: Collection[int] = (),
) -> Plan:
    """Plan a function for a device, attached or described, or for each of several such devices.

    ``donated`` are the arguments, by number, whose memory results may take.

    On one that is not attached nothing is measured, and a note says so.
    """
    if device.compute_capability is not None:
        if not device.attached and not cuda_plugin_installed():  # Who lacks both is told of the extra that has both.
            raise CudaPluginMissing
        major, minor = device.compute_capability
        require(10 * major + minor)
    captured = capture(fun, args, device, placement=placement, donated=donated)
    count_xla = functools.partial(_count, captured)
    try:
        stitched = stitch_and_tune(captured, device, device, planner, templates, autotune)
    except Unstitchable as reason:
        stages.dump(captured, None)
        whole = (Boundary(captured.name, "function", str(reason)),)
        nothing = functools.partial(traffic, "HloModule empty\n\nENTRY e {\n  ROOT t = () tuple()\n}\n")
        count = count_xla if captured.unsupported is None else nothing
        note = f"not stitched: {reason}"
        plan = Plan(captured.name, device, (), whole, _bound(captured), captured.text, count, count, (note,))
        seen = {"hlo": lambda: captured.text}
        final = None if captured.unsupported is not None else functools.partial(_final_text, captured)
        return replace(plan, planner=planner, unstitched=str(reason), final_hlo=final, stages=seen)
    stages.dump(captured, stitched)
    kernels = _kernel_plans(stitched)
    text = functools.cache(functools.partial(_stitched_text, captured, stitched))
    return Plan(
        captured.name,
        device,
        kernels,
        tuple(_boundaries(stitched)),
        _bound(captured),
        captured.text,
        count_xla,
        # Without kernels the program is XLA's own.
        count_xla if not stitched.kernels else functools.partial(_count_stitched, text, stitched, kernels),
        (*_notes(captured), *_planners_notes(stitched.plan), *_unmeasured(device, autotune)),
        stitched.seconds,
        planner,
        functools.partial(explain, stitched),
        stages=stage_texts(stitched),
        final_hlo=functools.partial(_final_text, captured),
        rebuilt_hlo=text if stitched.kernels else None,
    )


def _final_text(captured: Capture) -> str:
    return captured.default_text


def _notes(captured: Capture) -> tuple[str, ...]:
    split = captured.partitioning
    if split is None:
        return ()
    axes = ", ".join(f"{name}={size}" for name, size in split.mesh.shape.items())
    return (f"for each of {split.mesh.size} devices (mesh {axes}), on its parts of the arrays",)


def _unmeasured(device: Device, autotune: Autotune) -> tuple[str, ...]:
    if device.attached or autotune is Autotune.OFF:
        return ()
    return (f"autotune: {device.name} is not attached, so that nothing could be measured: this is what is predicted",)


def _planners_notes(plan: FusionPlan) -> tuple[str, ...]:
    """Return what the planner has to say about the whole function and each of its loops and branches."""
    return tuple(dict.fromkeys((*plan.notes, *(n for p in plan.children.values() for n in _planners_notes(p)))))


def _count(captured: Capture) -> Traffic:
    return traffic(captured.default_text)


def _stitched_text(captured: Capture, stitched: Stitched) -> str:
    """Return the rebuilt program as XLA compiles it for the device."""
    device = stitched.device
    run = stitched.function(_not_run(stitched))
    split = captured.partitioning
    whole = run if split is None else split.on_devices(run)

    def rebuilt(*parameters: Any) -> list[Any]:
        return whole(parameters)

    rebuilt.__name__ = captured.name
    placement = None if split is None else split.placement
    with choice.compiling_for(device.attached and not device.target.is_host):
        lowered = lower(rebuilt, captured.whole_parameters, device, placement, captured.donated)
    return lowered.default_text()


def _count_stitched(text: Callable[[], str], stitched: Stitched, kernels: Sequence[KernelPlan]) -> Traffic:
    """Return the traffic of the rebuilt program, and what kernels read of it more than once."""
    counted = traffic(text(), host.unread)
    rows = []
    for kernel, plan in zip(stitched.kernels, kernels, strict=True):
        again = 0 if plan.latency is None else plan.latency.bytes_read_again
        for n, when in ((kernel.bytes_read_again, "after a barrier"), (again, "again, from memory")):
            if n:
                name = f"{kernel.scheduled.name} {when}"
                rows.append(KernelTraffic(name, "custom-call", 0, kernel.launches * n, library=False))
    return replace(counted, kernels=(*counted.kernels, *rows))


def _not_run(stitched: Stitched) -> Sequence[Kernel]:
    """Return its kernels for a program that is only counted. A C++ compiler takes seconds for each, which they need to
    run.
    """
    if stitched.device.target.is_host:
        return [stand_in(source.name) for source in stitched.sources]
    return stitched.compile_kernels(target_of(stitched.device))


def _bound(captured: Capture) -> int:
    arrays = (*captured.parameters, *captured.results)
    return sum(a.size * a.dtype.itemsize for a in arrays)


def _kernel_plans(stitched: Stitched) -> tuple[KernelPlan, ...]:
    """Return the kernels with what each is predicted to take; those that are alike take as long."""
    device = stitched.device
    compiled = (
        stitched.compile_kernels(target_of(device)) if not device.target.is_host else [None] * len(stitched.sources)
    )
    by_source = {
        id(s): c if isinstance(c, PtxKernel) else None for s, c in zip(stitched.sources, compiled, strict=True)
    }
    latencies: dict[int, Latency] = {}
    for kernel in stitched.kernels:
        key = id(kernel.source)
        if key not in latencies:
            latencies[key] = latency(kernel.scheduled, device, by_source[key])
    return tuple(_kernel_plan(kernel, latencies[id(kernel.source)]) for kernel in stitched.kernels)


def _operations(node: Node) -> Iterable[Node]:
    """Return the operations of the user's program that a node stands for: a loop over tiles has them in its body."""
    if STREAMED not in node.attributes:
        return (node,)
    made = {n.name: n for n in node.graphs["body"].nodes if n.op not in ("parameter", "constant", "iota")}
    return made.values()


def _kernel_plan(kernel: StitchedKernel, predicted: Latency) -> KernelPlan:
    graph = kernel.scheduled.graph
    nodes = [n for p in kernel.scheduled.parts for i in sorted(p.pattern.nodes) for n in _operations(graph[i])]
    copies = [i for p in kernel.scheduled.parts for i in sorted(p.pattern.copies)]
    source = kernel.source
    return KernelPlan(
        name=source.name,
        source=source.text,
        launch=Launch(source.grid, source.block, source.shared_bytes),
        ops=tuple(n.name or n.op for n in nodes),
        xla_kernels=tuple(dict.fromkeys(n.xla_kernel for n in nodes if n.kernel)),
        composition=kernel.scheduled.composition,
        schedule="; ".join(dict.fromkeys(map(str, templates_of(kernel.scheduled)))),
        bytes_read=kernel.scheduled.bytes_read + predicted.bytes_read_again,
        bytes_written=kernel.scheduled.bytes_written,
        launches=kernel.launches,
        measured=kernel.measured,
        latency=predicted,
        copies=tuple(dict.fromkeys(graph[i].name or graph[i].op for i in copies)),
    )


def _boundaries(stitched: Stitched) -> list[Boundary]:
    boundaries: list[Boundary] = []
    plans = [stitched.plan]
    while plans:
        plan = plans.pop()
        plans += plan.children.values()
        for boundary in plan.boundaries:
            node = plan.graph[boundary.node]
            boundaries.append(Boundary(node.name or node.op, node.op, boundary.reason, node.xla_kernel))
    return boundaries
