"""The time of a plan on a CPU whose caches hold all its values: of calls and operations, with hardly any of bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from math import prod

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.patterns.pattern import FusionPlan, Pattern
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.patterns.traffic import BYTES_PER_THREAD
from jax_stitch.analysis.sizes import is_of_one_number, node_bytes
from jax_stitch.analysis.support import is_rematerializable, is_view
from jax_stitch.analysis.terms import steps_of
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import XlaKernels
from jax_stitch.fusion.launches.shared_calls import launch_seconds
from jax_stitch.fusion.piece import CALL, OUTSIDE
from jax_stitch.graph.model import Graph, Node
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.cost.team_cost import nest_seconds, straight_team_seconds, team_seconds
from jax_stitch.loops.cost.weights import combiner_weight, own_weight
from jax_stitch.loops.cost.xla_cost import far_seconds, is_by_vector, is_windowed, work_seconds
from jax_stitch.loops.teams.sharing import VECTOR_CLOCKS

PRODUCT_SECONDS = 1e-6
"""Seconds of XLA:CPU for a matrix product, besides its arithmetic and the call of a kernel."""

SMALL_PRODUCT = 1 << 13
"""The most multiplications of a product of matrices outside loops that XLA:CPU computes on one core."""

WAKE_SECONDS = 15e-6
"""Seconds to wake another core for its share of a larger product. Measured in chains of products of 64 and 128 rows:
of the first of a call it is 30 to 100 us.
"""

LAYOUT_CLOCKS = 2.4
"""Clocks of one of XLA:CPU's cores to lay out an element of a factor for its library, outside loops. Measured on two:
0.3 to 0.6 ns for each element of 256 x 256 to 1024 x 1024 matrices, beside what their multiplications take.
"""

REDUCED_CLOCKS = 0.7
"""Clocks of our kernels to add a vector to a sum of vectors. Measured; a maximum takes three times as long."""

TURN_CLOCKS = 1.5
"""Clocks of XLA:CPU per element of a transposed copy. Measured."""


def call_seconds(plan: FusionPlan, device: Device) -> float:
    """Return the seconds of one call of a plan's graph, without the computations that it calls."""
    work = sum(seconds_of(plan.graph, p, device) for kernel in plan.kernels for p in kernel)
    return launch_seconds(plan.graph, plan.kernels, device) + work + call_seconds_left(plan, device)


def call_seconds_left(plan: FusionPlan, device: Device) -> float:
    """Return the seconds of ``call_seconds`` that XLA's own kernels take."""
    graph, launch = plan.graph, device.target.launch_seconds
    patterns = [p for kernel in plan.kernels for p in kernel]
    taken = {i for p in patterns for i in p.nodes}
    read = {i for p in patterns for i in p.inputs}
    around = {o for n in graph.nodes if n.op in (OUTSIDE, CALL) for o in n.operands}
    wanted = {*graph.results, *read, *around}
    groups: dict[str, list[int]] = defaultdict(list)
    origins = XlaKernels(graph, taken)
    for node in reversed(graph.nodes):
        if node.id in taken or node.id not in wanted:
            continue
        wanted |= set(node.operands)
        if node.op not in (OUTSIDE, CALL) and _is_made(graph, node, read) and not is_of_one_number(graph, node.id):
            groups[origins.of(node.id)].append(node.id)
    left = [graph[i] for nodes in groups.values() for i in nodes]
    products = [_product_seconds(graph, n, device) for n in left if n.op == "dot"]
    windowed = sum(n.op == "reduce" and is_windowed(graph, n) for n in left)
    calls = launch * (len(groups) + windowed) + sum(products)
    transposed = sum(n.tensor.size for n in left if n.op == "transpose") * TURN_CLOCKS / (device.clock_ghz * 1e9)
    return calls + transposed + work_seconds(graph, left, device)


def _product_seconds(graph: Graph, node: Node, device: Device) -> float:
    """Return what a product takes XLA outside loops beside its multiplications."""
    sizes = [graph[o].tensor.size for o in node.operands]
    if is_by_vector(graph, node):
        moved = sum(node_bytes(graph[i]) for i in (*node.operands, node.id))
        return PRODUCT_SECONDS + max(0.0, far_seconds(moved, device) - work_seconds(graph, [node], device))
    is_shared = device.multiprocessors > 1 and node.tensor.size * prod(steps_of(graph, node)) > SMALL_PRODUCT
    layout = LAYOUT_CLOCKS * sum(sizes) / device.multiprocessors / (device.clock_ghz * 1e9)
    return PRODUCT_SECONDS + (WAKE_SECONDS + layout if is_shared else 0.0)


def _is_made(graph: Graph, node: Node, read: Collection[int]) -> bool:
    """Return whether XLA runs a kernel for a node. Products and reductions moved out of loops count too, and a
    transpose that a stitched kernel reads.
    """
    if is_rematerializable(node) or node.op in ("while", "conditional"):
        return False
    if is_view(node):
        return node.op == "transpose" and node.id in read and not is_rematerializable(graph[node.operands[0]])
    return bool(node.kernel) or node.op in ("dot", "reduce")


def seconds_of(graph: Graph, pattern: Pattern, device: Device) -> float:
    """Return the seconds that a pattern computes, without the launch of its kernel."""
    match pattern.loop:
        case None:
            return straight_seconds(graph, pattern, device)
        case TeamLoop(trips=1) as loop if not loop.carried:
            return straight_team_seconds(loop, device)
        case TeamLoop(likely_trips=trips) as loop:
            return trips * team_seconds(loop, device)
        case nest:
            return nest_seconds(nest, device)


def straight_seconds(graph: Graph, pattern: Pattern, device: Device) -> float:
    """Return the seconds of the operations of straight code, on all cores that its arrays are shared out over."""
    clocks = sum(_vector_clocks(graph, graph[i]) for i in pattern.inside) / device.fp32_lanes
    touched = sum(node_bytes(graph[i]) for i in (*pattern.inputs, *pattern.outputs))
    cores = max(1, min(device.multiprocessors, touched // BYTES_PER_THREAD))
    return clocks / (device.clock_ghz * 1e9) / cores


def _vector_clocks(graph: Graph, node: Node) -> float:
    """Return the clocks of vector code for a whole value, times the lanes of a vector."""
    if node.op in ("reduce", PARTIAL):
        return graph[node.operands[0]].tensor.size * combiner_weight(node) * REDUCED_CLOCKS
    if node.op not in ELEMENTWISE:
        return 0.0
    light, heavy = own_weight(node)
    return node.tensor.size * (VECTOR_CLOCKS[0] * light + VECTOR_CLOCKS[1] * heavy)
