"""The plan of a function for a device: what stitching it does, or would do, there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jax_stitch.capture import Capture, capture, lower
from jax_stitch.capture.errors import Unstitchable
from jax_stitch.capture.traffic import KernelTraffic, Traffic, traffic
from jax_stitch.compile import target_of
from jax_stitch.compile.nvrtc import require
from jax_stitch.devices import Device
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.plan import Boundary, KernelPlan, Launch, Plan


def make_plan(fun: Callable[..., Any], args: Sequence[Any], device: Device) -> Plan:
    """Plans a function for a device, attached or described."""
    if device.compute_capability is not None:
        major, minor = device.compute_capability
        require(10 * major + minor)
    captured = capture(fun, args, device)
    count_xla = functools.partial(_count, captured)
    try:
        stitched = stitch_capture(captured, device)
    except Unstitchable as reason:
        whole = (Boundary(captured.name, "function", str(reason)),)
        nothing = functools.partial(traffic, "HloModule empty\n\nENTRY e {\n  ROOT t = () tuple()\n}\n")
        count = count_xla if captured.unsupported is None else nothing
        note = f"not stitched: {reason}"
        return Plan(captured.name, device, (), whole, _bound(captured), captured.text, count, count, (note,))
    return Plan(
        captured.name,
        device,
        tuple(_kernel_plan(stitched, n) for n in range(len(stitched.kernels))),
        tuple(_boundaries(stitched)),
        _bound(captured),
        captured.text,
        count_xla,
        functools.partial(_count_stitched, stitched),
        (),
        stitched.seconds,
    )


def _count(captured: Capture) -> Traffic:
    return traffic(captured.default_text)


def _count_stitched(stitched: Stitched) -> Traffic:
    """Traffic of the rebuilt program as XLA compiles it for the device."""
    device = stitched.device
    run = stitched.compile(target_of(device))

    def rebuilt(*parameters: Any) -> list[Any]:
        return run(parameters)

    rebuilt.__name__ = stitched.capture.name
    counted = traffic(lower(rebuilt, stitched.capture.parameters, device).default_text())
    again = [(k.scheduled.name, k.launches * k.bytes_read_again) for k in stitched.kernels]
    rows = (KernelTraffic(f"{name} after a barrier", "custom-call", 0, n, library=False) for name, n in again if n)
    return replace(counted, kernels=(*counted.kernels, *rows))


def _bound(captured: Capture) -> int:
    arrays = (*captured.parameters, *captured.results)
    return sum(a.size * a.dtype.itemsize for a in arrays)


def _kernel_plan(stitched: Stitched, n: int) -> KernelPlan:
    kernel = stitched.kernels[n]
    graph = kernel.scheduled.graph
    nodes = [graph[i] for p in kernel.scheduled.parts for i in sorted(p.pattern.nodes)]
    source = kernel.source
    return KernelPlan(
        name=source.name,
        source=source.text,
        launch=Launch(source.grid, source.block, source.shared_bytes),
        ops=tuple(n.name or n.op for n in nodes),
        xla_kernels=tuple(dict.fromkeys(n.kernel for n in nodes if n.kernel)),
        composition=kernel.scheduled.composition,
        schedule="; ".join(dict.fromkeys(str(p.split) for p in kernel.scheduled.parts)),
        bytes_read=kernel.scheduled.bytes_read,
        bytes_written=kernel.scheduled.bytes_written,
        launches=kernel.launches,
    )


def _boundaries(stitched: Stitched) -> list[Boundary]:
    found: list[Boundary] = []
    plans = [stitched.plan]
    while plans:
        plan = plans.pop()
        plans += plan.children.values()
        for cut in plan.cuts:
            node = plan.graph[cut.node]
            found.append(Boundary(node.name or node.op, node.op, cut.reason, node.kernel))
    return found
