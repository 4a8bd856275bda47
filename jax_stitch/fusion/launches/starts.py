"""Arrays of one number that XLA's scatters start from, written by kernels of ours that run before.

XLA writes each in a launch of its own. Where several scatters start from the same, its versions differ: one writes all
of them in one launch, another each in its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from jax_stitch.analysis.binding import rows_of
from jax_stitch.analysis.patterns.pattern import FusionPlan, Pattern
from jax_stitch.analysis.sizes import is_of_one_number
from jax_stitch.analysis.support import DTYPES
from jax_stitch.devices import Device
from jax_stitch.fusion.launches.buffers import buffers_fit
from jax_stitch.fusion.launches.packing import Kernel
from jax_stitch.graph.builder import Builder, copied, moved
from jax_stitch.graph.model import Graph, Node
from jax_stitch.util.values import replace

START_OF = "start_of"
"""Attribute of an array of one number that is there for one scatter alone: which one."""


def own_starts(graph: Graph, device: Device) -> Graph:
    """Return the graph with an array of its own for each scatter that starts from one number everywhere: scatters write
    over theirs, so that of a shared one XLA makes copies.
    """
    if not device.target.packs_launches or not any(_start(graph, n) is not None for n in graph.nodes):
        return graph

    def instead(builder: Builder, node: Node, ids: Mapping[int, int]) -> int | None:
        start = _start(graph, node)
        if start is None:
            return None
        array, operands = graph[start], [ids[o] for o in node.operands]
        attributes = {**array.attributes, START_OF: node.id}
        operands[0] = builder.derive(array, array.op, array.type, [ids[o] for o in array.operands], attributes)
        return builder.add(moved(node, -1, tuple(operands)))

    return copied(graph, instead)


def with_starts(plan: FusionPlan, device: Device) -> FusionPlan:
    """Return the plan with what XLA's scatters start from in kernels that they wait for anyway, where there are any."""
    graph, kernels = plan.graph, list(plan.kernels)
    writers = {i: k for k, kernel in enumerate(kernels) for p in kernel for i in p.outputs}
    taken = {i for kernel in kernels for p in kernel for i in p.nodes}
    for node in graph.nodes:
        if node.op != "scatter" or node.id in taken or START_OF not in graph[node.operands[0]].attributes:
            continue
        filling = _filling(graph, node.operands[0])
        for k in _before(graph, node, kernels, writers):
            if _takes_more(kernels[k]) and buffers_fit((*kernels[k], filling), device):
                kernels[k] = (*kernels[k], filling)
                break
    return replace(plan, kernels=tuple(kernels))


def _before(graph: Graph, node: Node, kernels: Sequence[Kernel], writers: Mapping[int, int]) -> Iterator[int]:
    """Yield the kernels that a node waits for, by number, the nearest first."""
    seen: set[int] = set()
    reached: set[int] = set()
    waiting = deque(node.operands)
    while waiting:
        i = waiting.popleft()
        if i in seen:
            continue
        seen.add(i)
        k = writers.get(i)
        if k is None:
            waiting += graph[i].operands
        elif k not in reached:
            reached.add(k)
            yield k
            waiting += (o for p in kernels[k] for o in p.inputs)


def _start(graph: Graph, node: Node) -> int | None:
    """Return the array of one number that a scatter of one array starts from, where a kernel can hold such numbers."""
    if node.op != "scatter" or len(node.operands) != 3 or not is_of_one_number(graph, node.operands[0]):
        return None
    if graph[node.operands[0]].tensor.dtype not in DTYPES:
        return None
    return node.operands[0] if graph[graph[node.operands[0]].operands[0]].op == "constant" else None


def _filling(graph: Graph, i: int) -> Pattern:
    """Return the pattern that writes an array of one number, every element a row."""
    tensor = graph[i].tensor
    rows = rows_of(tensor.dims, range(len(tensor.dims)))
    return Pattern(frozenset({i}), tensor.size, {i: rows}, (), (i,))


def _takes_more(kernel: Kernel) -> bool:
    """Return whether a pattern of rows by themselves may be added: no loop's launch, and none whose blocks wait."""
    return all(p.loop is None and p.phase == 0 for p in kernel)
