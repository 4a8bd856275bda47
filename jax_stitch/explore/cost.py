"""The delta-evaluator: what a pattern saves over XLA's kernels, in seconds (2021 paper, section 5.3; 2019 paper, M(V) = V / B(V))."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.devices import Device
from jax_stitch.explore.pattern import Pattern
from jax_stitch.explore.region import inputs_of, outputs_of
from jax_stitch.graph.model import Graph, Node, TensorType

LAUNCH_SECONDS = {"cuda": 2.5e-6, "cpu": 1.5e-6}
"""What one more kernel costs where the next one waits for it."""


def node_bytes(node: Node) -> int:
    """Size of a value in bytes."""
    if isinstance(node.type, TensorType):
        return _array_bytes(node.type)
    return sum(_array_bytes(e) for e in getattr(node.type, "elements", ()) if isinstance(e, TensorType))


def _array_bytes(t: TensorType) -> int:
    return (t.size * ELEMENT_TYPES[t.dtype].bits + 7) // 8


def xla_kernels(graph: Graph, members: Collection[int]) -> dict[str, set[int]]:
    """Members by the XLA kernel that computes them."""
    found: dict[str, set[int]] = defaultdict(set)
    for i in members:
        found[graph[i].kernel or f"%{i}"].add(i)
    return found


@dataclass(frozen=True, slots=True)
class Gain:
    """Seconds saved, and the terms it is the sum of."""

    memory: float
    """Reduced memory time."""
    calls: float
    """Reduced launches, times the cost of one."""
    penalty: float
    """Time lost because work is split over too few rows to fill the device."""
    merged: int
    """XLA kernels that the pattern replaces."""

    @property
    def seconds(self) -> float:
        return self.memory + self.calls - self.penalty


def evaluate(graph: Graph, pattern: Pattern, device: Device) -> Gain:
    """What the pattern saves as one kernel, over the kernels that XLA has for its nodes."""
    groups = xla_kernels(graph, pattern.nodes)
    before = 0
    for group in groups.values():
        before += sum(node_bytes(graph[i]) for i in inputs_of(graph, group))
        before += sum(node_bytes(graph[i]) for i in outputs_of(graph, group))
    after = sum(node_bytes(graph[i]) for i in (*pattern.inputs, *pattern.outputs))
    slow = after / device.memory_bandwidth
    share = parallel_share(graph, pattern, device)
    launch = LAUNCH_SECONDS[device.kind]
    return Gain(
        (before - after) / device.memory_bandwidth,
        launch * (len(groups) - 1),
        slow / share - slow,
        len(groups),
    )


def parallel_share(graph: Graph, pattern: Pattern, device: Device) -> float:
    """The share of the device that a split into this many rows can keep busy: one block per row at most."""
    largest = max(
        (graph[i].tensor.size for i in (*pattern.nodes, *pattern.inputs) if isinstance(graph[i].type, TensorType)), default=1
    )
    per_row = max(1, largest // pattern.rows)
    if device.kind == "cpu":
        return min(1.0, pattern.rows / device.multiprocessors)
    # About half of the multiprocessors, each with a full block, saturate the memory.
    blocks = pattern.rows * min(per_row, 1024) / 1024
    return min(1.0, 2 * blocks / device.multiprocessors)
