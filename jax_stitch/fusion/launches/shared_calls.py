"""Small kernels that share a call on a CPU (``frontend/replay/calls.py`` joins them), and more of them: each kernel of
XLA's between two of ours costs a call, and parts theirs.
"""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Sequence

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.traffic import moved_bytes
from jax_stitch.devices import Device
from jax_stitch.fusion.launches.packing import Kernel
from jax_stitch.fusion.launches.quotient import launched_in_order
from jax_stitch.graph.model import Graph
from jax_stitch.graph.opcodes import TAKES_NO_TIME


def calls_of(graph: Graph, kernels: Sequence[Kernel], device: Device) -> list[list[int]]:
    """Return the kernels, by number, in those that share a call: small ones that wait for the same of other operations
    and kernels."""
    waits: dict[tuple[str, int], int] = {}
    """For each, what has to be done before it: the bits of a number."""
    shared: dict[int, list[int]] = defaultdict(list)
    alone: list[list[int]] = []
    for at, (key, reads) in enumerate(launched_in_order(graph, kernels)):
        kind, number = key
        before = functools.reduce(operator.or_, (waits[r] for r in reads), 0)
        if kind == "node":
            node = graph[number]
            waits[key] = before | (node.op not in TAKES_NO_TIME and bool(node.operands)) << at
        elif is_small(graph, kernels[number], device):
            waits[key] = before
            shared[before].append(number)
        else:
            waits[key] = before | 1 << at
            alone.append([number])
    return [*shared.values(), *alone]


def launch_seconds(graph: Graph, kernels: Sequence[Kernel], device: Device) -> float:
    """Return what the launches of kernels take: of those that share a call, the first that of a call."""
    target = device.target
    if not target.shared_call_bytes:
        return len(kernels) * target.launch_seconds
    calls = len(calls_of(graph, kernels, device))
    return calls * target.launch_seconds + (len(kernels) - calls) * target.kernel_seconds


def is_small(graph: Graph, kernel: Kernel, device: Device) -> bool:
    """Return whether a kernel is so small that it may share a call."""
    return sum(moved_bytes(graph, p) for p in kernel) < device.target.shared_call_bytes


def in_company(graph: Graph, chosen: Sequence[Pattern], left: Sequence[Pattern], device: Device) -> list[Pattern]:
    """Return those of the patterns ``left`` to XLA that can share a call, with ``chosen`` ones or with each other."""
    kept = [p for p in left if is_small(graph, (p,), device)]
    while True:
        calls = calls_of(graph, [(p,) for p in (*chosen, *kept)], device)
        alone = {call[0] - len(chosen) for call in calls if len(call) == 1}
        if alone.isdisjoint(range(len(kept))):
            return kept
        kept = [p for k, p in enumerate(kept) if k not in alone]
