"""Estimates of the time of a loop in teams and as XLA runs it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from math import ceil, prod

from jax_stitch.analysis.results import Results
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.analysis.terms import steps_of
from jax_stitch.devices import Device
from jax_stitch.graph.model import COPIED, ONE_KERNEL, Graph, Node, TensorType
from jax_stitch.ir.nest import LIKELY_TRIPS, UNKNOWN_TRIPS, Nest
from jax_stitch.ir.team import TeamLoop
from jax_stitch.loops.chains import DIVISIONS, MULTIPLY_CLOCKS, chain, is_division, own_clocks, xla_clocks
from jax_stitch.loops.sharing import SCALAR_CLOCKS, VECTOR_CLOCKS, clocks, shared_out
from jax_stitch.loops.weights import plain_weight, xla_weight
from jax_stitch.operations import ELEMENTWISE

GRID_BARRIER_SECONDS = 1.1e-6
"""Seconds of a barrier of all blocks of a launch. Measured on an H200."""

PRODUCT_TILE, PRODUCT_STEPS = 64 * 64, 512
"""Elements of a product that one of XLA's blocks computes, and the fewest steps that XLA splits over several blocks."""

VECTOR_PRODUCT_CLOCK = {"rows": 8.0, "columns": 4.0, "fused": 0.6}
"""Multiplications per clock of one core of a CPU in XLA's products of a matrix and a vector: summed along the matrix's
rows, along its columns, or inside a fusion, element by element. Measured.
"""

PACK_CLOCKS, SHARED_PRODUCT = 1.0, 1 << 23
"""Clocks of XLA:CPU to pack an element of a product's left operand into its reading order, and the most
multiplications of a product that one core computes alone. Measured inside loops; a narrow product is mostly packing.
"""

TREE_STEPS, TREE_CLOCKS = 32, 16.0
"""The window of XLA:CPU's tree reductions, and the clocks of an element in one: it reduces longer dimensions window by
window of so many elements, and then the windows' results. Measured: six nanoseconds.
"""

IN_ONE_KERNEL_SECONDS = {
    "step": 1e-9,
    "single": 1e-9,
    "kernel": 8e-9,
    "function": 2e-8,
    "division": 4e-9,
    "light": 3e-11,
    "heavy": 7e-10,
    "moved": 2e-11,
    "pieced": 3e-10,
    "summed": 2.3e-10,
    "multiplied": 1e-10,
}
"""Seconds in a loop that XLA:CPU compiles as one kernel: of an iteration ("step"); of a fusion of single elements or of
more ("single", "kernel"); the latency of a function, and of a division of single elements; of each element of a simple
or heavy operation; of each element that a fusion reads or writes ("moved"), that is put together or cut out one by one
("pieced"), that a reduction sums up, and that a product multiplies. Measured with jaxlib 0.12, which vectorises most.
"""

CALL_SECONDS = 2.5e-7
"""Seconds of a kernel call on a CPU."""

BLOCK_MARGIN = 1.4
"""The factor by which a loop whose products a CPU computes in blocks has to be estimated faster than the work of XLA's
kernels. Its products are as fast as XLA's, which leaves a smaller error of the estimate.
"""


def _slowness(body: Graph, dot: Node, device: Device) -> float:
    """Return the ratio of a product's time to that of its operations at the device's peak."""
    sizes = [body[o].tensor.size for o in dot.operands]
    if device.target.lanes_are_vectors and min(sizes) <= prod(steps_of(body, dot)):
        matrix = sizes.index(max(sizes))
        side = ("lhs_contracting_dims", "rhs_contracting_dims")[matrix]
        by_columns = tuple(dot.attributes.get(side, ())) == (0,)
        fused = sum(n.kernel == dot.kernel for n in body.nodes) > 1
        way = "fused" if fused else ("columns" if by_columns else "rows")
        return device.multiprocessors * device.fp32_lanes / VECTOR_PRODUCT_CLOCK[way]
    slowness = 1 / device.target.product_share
    # A CPU core starts two vector multiplications per clock.
    if not device.target.lanes_are_vectors:
        return slowness
    products = dot.tensor.size * prod(steps_of(body, dot))
    slowness = slowness / 2 + PACK_CLOCKS * body[dot.operands[0]].tensor.size * device.fp32_lanes / products
    return slowness * (device.multiprocessors if products <= SHARED_PRODUCT else 1)


def is_worth(loop: TeamLoop, node: Node, body: Graph, device: Device) -> bool:
    """Return whether a ``while`` node is faster in teams than with the kernels that XLA has for ``body``."""
    if device.target.inlines_loops and ONE_KERNEL in node.attributes:
        once = CALL_SECONDS + _ends_seconds(loop, device)
        moved = 2 * IN_ONE_KERNEL_SECONDS["moved"] * node.attributes.get(COPIED, 0)
        return team_seconds(loop, device) + once / loop.likely_trips <= in_one_kernel_seconds(body, device) + moved
    work = work_seconds(body, body.nodes, device)
    calls = xla_seconds(body, device) - work
    sure, likely = device.target.loop_margins
    if _is_in_blocks(loop, device):
        sure = BLOCK_MARGIN
    return team_seconds(loop, device) <= work / sure + calls / likely


def _ends_seconds(loop: TeamLoop, device: Device) -> float:
    """Return the seconds to copy values updated in place to a team's memory and back, without XLA's own copy."""
    return sum(2 * node_bytes(loop.body[c.next]) for c in loop.carried if c.placed) / device.memory_bandwidth


def _is_in_blocks(loop: TeamLoop, device: Device) -> bool:
    """Return whether an iteration has products, and all are computed in blocks."""
    sweeps = [p for group in shared_out(loop, device)[1] for p in group]
    products = [p for p in sweeps if any(loop.body[r].op == "dot" for r in p.reduces)]
    return bool(products) and all(p.sharing.chunk for p in products)


def team_seconds(loop: TeamLoop, device: Device) -> float:
    """Return the seconds of one iteration of all teams of ``loop``."""
    return _seconds.get(loop.body, (loop.inside, device), lambda: _team_seconds(loop, device))


_seconds: Results[tuple[Hashable, Device], float] = Results()


def _team_seconds(loop: TeamLoop, device: Device) -> float:
    threads, groups = shared_out(loop, device)
    total = 0.0
    for group in groups:
        total += sum(clocks(loop, p, threads, device) for p in group)
        total += device.target.barrier_clocks if loop.blocks == 1 else GRID_BARRIER_SECONDS * device.clock_ghz * 1e9
    if device.target.lanes_are_vectors:
        total = max(total, chain(loop.body, zip(loop.body.parameters, loop.body.results, strict=False), own_clocks))
    return total * ceil(loop.rows / device.multiprocessors) / (device.clock_ghz * 1e9)


ROWS_OF_A_CORE = 256
"""Rows of loops in threads for which another core is used."""

ROWS_OF_A_THREAD = 4096
"""About the rows that a thread of a CPU runs: values that are uniform over the rows are computed once for them."""


def nest_seconds(nest: Nest, device: Device) -> float:
    """Return the seconds of all iterations of loops in threads of a CPU, in vectors of rows or of one row alone."""
    steps = nest.steps / len(nest.loops)
    each = SCALAR_CLOCKS if nest.rows == 1 else VECTOR_CLOCKS
    vectors = ceil(nest.rows / device.warp_size) * _clocks(each, nest.varying)
    shared = ceil(nest.rows / ROWS_OF_A_THREAD) * _clocks(SCALAR_CLOCKS, nest.uniform)
    carried = ((c.parameter, c.next) for loop in nest.loops for c in loop.carried)
    waiting = chain(nest.graph, carried, own_clocks) if nest.rows == 1 else 0.0
    return steps * max(vectors + shared, waiting) / (device.clock_ghz * 1e9)


def _clocks(each: tuple[float, float], work: tuple[float, float]) -> float:
    return each[0] * work[0] + each[1] * work[1]


def nests_gain(graph: Graph, nodes: Iterable[Node], nest: Nest, device: Device) -> float:
    """Return the speed-up of the loops ``nodes`` in a CPU's threads, as ``nest``, over XLA's kernels."""
    taken = 0.0
    for node in nodes:
        body = node.graphs["body"]
        is_one = device.target.inlines_loops and ONE_KERNEL in node.attributes
        step = in_one_kernel_seconds(body, device) if is_one else xla_seconds(body, device)
        taken += step * (node.attributes.get("trip_count") or node.attributes.get(LIKELY_TRIPS, UNKNOWN_TRIPS))
    cores = max(1, min(device.multiprocessors, nest.rows // ROWS_OF_A_CORE))
    return taken / (nest_seconds(nest, device) / cores)


def in_one_kernel_seconds(body: Graph, device: Device) -> float:
    """Return the seconds of one iteration of a loop that XLA:CPU compiles as one kernel."""
    counts = dict.fromkeys(IN_ONE_KERNEL_SECONDS, 0.0)
    counts["step"] = 1.0
    kernels = {n.kernel for n in body.nodes if n.kernel}
    large = {n.kernel for n in body.nodes if n.kernel and _written(body, n) > 1}
    counts["single"], counts["kernel"] = len(kernels - large), len(large)
    waiting = chain(body, zip(body.parameters, body.results, strict=False), xla_clocks) / (device.clock_ghz * 1e9)
    counts["moved"], counts["pieced"] = _moved(body), sum(_pieced(body, n) for n in body.nodes)
    for n in body.nodes:
        if n.op == "dot":
            counts["multiplied"] += n.tensor.size * prod(steps_of(body, n))
        elif n.op == "reduce":
            counts["summed"] += body[n.operands[0]].tensor.size
        elif n.op in ELEMENTWISE and isinstance(n.type, TensorType):
            light, heavy = xla_weight(n) if n.op not in DIVISIONS or is_division(body, n) else (MULTIPLY_CLOCKS, 0.0)
            counts["light"] += n.tensor.size * light
            counts["heavy"] += n.tensor.size * heavy
            if n.tensor.size > 1 or n.op not in DIVISIONS:
                counts["function"] += heavy > 0.0
            else:
                counts["division"] += is_division(body, n)
    inner = sum(times * in_one_kernel_seconds(b, device) for _, b, times in called_in(body.nodes))
    return inner + waiting + sum(IN_ONE_KERNEL_SECONDS[what] * count for what, count in counts.items())


def _pieced(body: Graph, node: Node) -> int:
    """Return the number of elements that XLA puts together of several arrays, cuts out of rows or transposes one by
    one.
    """
    if not node.kernel or not isinstance(node.type, TensorType) or node.type.size == 1:
        return 0
    is_written = any(body[u].kernel != node.kernel for u in body.users[node.id])
    if node.op == "slice":
        is_cut = body[node.operands[0]].tensor.dims[1:] != node.type.dims[1:]
        return node.type.size if is_written and is_cut else 0
    return node.type.size if node.op in ("concatenate", "pad") or (node.op == "transpose" and is_written) else 0


def _written(body: Graph, node: Node) -> int:
    """Return the number of elements of a node that XLA computes: of an in-place update only the updated ones."""
    if not isinstance(node.type, TensorType):
        return 1
    return body[node.operands[1]].tensor.size if node.op == "dynamic-update-slice" else node.tensor.size


def _moved(body: Graph) -> float:
    """Return the number of elements that XLA's fusions read from each other and write."""
    moved = 0.0
    for n in body.nodes:
        if not n.kernel or not isinstance(n.type, TensorType):
            continue
        operands = [body[o] for o in n.operands if isinstance(body[o].type, TensorType)]
        if n.op == "dynamic-update-slice":  # in place
            operands = operands[1:2]
        elif n.id in body.result_set or any(body[u].kernel != n.kernel for u in body.users[n.id]):
            moved += n.tensor.size
        for o in operands:
            if o.kernel != n.kernel and o.op != "constant":
                whole = n.op in ("reduce", "dot", "dynamic-update-slice") or n.op in ELEMENTWISE
                moved += o.tensor.size if whole else min(o.tensor.size, n.tensor.size)
    return moved


def called_in(nodes: Iterable[Node]) -> Iterator[tuple[Node, Graph, float]]:
    """Yield the loops and conditionals of nodes, their graphs, and about how often each runs: branches alike."""
    for n in nodes:
        if n.op == "while":
            yield n, n.graphs["body"], n.attributes.get("trip_count") or UNKNOWN_TRIPS
        elif n.op == "conditional":
            for branch in n.graphs.values():
                yield n, branch, 1 / len(n.graphs)


def xla_seconds(body: Graph, device: Device) -> float:
    """Return the seconds of one iteration of a loop as XLA runs it: its kernels one after the other."""
    kernels = {n.kernel for n in body.nodes if n.kernel and not is_rematerializable(n)}
    dots = sum(n.op == "dot" for n in body.nodes)
    per_dot, per_kernel = device.target.product_step_seconds
    calls = dots * per_dot + len(kernels) * (per_kernel if dots else 0.0)
    for node, called, times in called_in(body.nodes):
        if ONE_KERNEL not in node.attributes:
            calls += times * (xla_seconds(called, device) - work_seconds(called, called.nodes, device))
    return len(kernels) * device.target.kernel_seconds + calls + work_seconds(body, body.nodes, device)


def work_seconds(body: Graph, nodes: Iterable[Node], device: Device) -> float:
    """Return the seconds of XLA's kernels for some nodes, without their launches."""
    products = elementwise = inner = 0.0
    nodes = tuple(nodes)
    weigh = xla_weight if device.target.lanes_are_vectors else plain_weight
    for node, called, times in called_in(nodes):
        is_one = ONE_KERNEL in node.attributes
        inner += times * (
            in_one_kernel_seconds(called, device) if is_one else work_seconds(called, called.nodes, device)
        )
    for n in nodes:
        if n.op == "dot":
            products += n.tensor.size * prod(steps_of(body, n)) * _slowness(body, n, device)
        elif n.op == "reduce":
            elementwise += body[n.operands[0]].tensor.size * _reduce_clocks(body, n, device)
        elif n.op in ELEMENTWISE:
            light, heavy = weigh(n)
            elementwise += n.tensor.size * (light + 10 * heavy)
    rate = device.multiprocessors * device.fp32_lanes * device.clock_ghz * 1e9
    if device.target.lanes_are_vectors:  # One core does all but products, and its reductions element by element.
        elementwise *= device.multiprocessors
    return inner + (products + elementwise) / rate


def _reduce_clocks(body: Graph, node: Node, device: Device) -> float:
    """Return XLA's clocks to reduce an element, times the lanes of a vector."""
    if not device.target.lanes_are_vectors:
        return 1.0
    dims = body[node.operands[0]].tensor.dims
    is_tree = any(dims[d] > TREE_STEPS for d in node.attributes["dimensions"])
    return device.warp_size * (TREE_CLOCKS if is_tree else 1.0)


def sum_seconds(graph: Graph, node: Node, device: Device) -> float:
    """Return the seconds of a product or reduction of ``graph`` as XLA runs it: as two kernels where the sums are so
    long and so few that XLA splits each over several blocks.
    """
    size, steps = node.tensor.size, prod(steps_of(graph, node))
    blocks = size / PRODUCT_TILE if node.op == "dot" else size / device.warp_size
    split = not device.target.lanes_are_vectors and blocks < device.multiprocessors and steps >= PRODUCT_STEPS
    rate = device.multiprocessors * device.fp32_lanes * device.clock_ghz * 1e9
    return (1 + split) * device.target.kernel_seconds + size * steps * _slowness(graph, node, device) / rate
