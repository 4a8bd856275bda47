"""Estimates of the time of XLA's own kernels: of a loop's iteration, of some operations, of a product.

Times of loops on a CPU are measured with jaxlib 0.12 (EPYC with vectors of 256 bits, one core).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import log2, prod

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.patterns.nest import UNKNOWN_TRIPS
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.analysis.terms import steps_of
from jax_stitch.devices import Device
from jax_stitch.graph.combiners import combines_by
from jax_stitch.graph.model import COPIED, ONE_KERNEL, ROLLED, Graph, Node, TensorType
from jax_stitch.graph.products import has_default_precision
from jax_stitch.graph.rewrites.factorizations import CALLED, library_call
from jax_stitch.graph.scans import scan_of
from jax_stitch.graph.sorts import sort_of
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.cost.chains import DIVISIONS, FEW, MULTIPLY_CLOCKS, chain, is_division, xla_clocks
from jax_stitch.loops.cost.weights import warp_weight, xla_weight

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

IN_ONE_KERNEL_SECONDS = {
    "step": 1e-9,
    "single": 1e-9,
    "kernel": 1.5e-8,
    "function": 4e-9,
    "division": 4e-9,
    "light": 3e-11,
    "heavy": 4.8e-10,
    "moved": 2e-11,
    "copied": 1e-10,
    "transposed": 3e-10,
    "product": 1.5e-8,
    "multiplied": 4e-11,
    "multiplied_unevenly": 8e-11,
    "multiplied_in_fusion": 2e-10,
    "singly": 1e-9,
    "rolled": 5e-8,
    "rolled_element": 2.5e-10,
    "rolled_singly": 3.2e-9,
}
"""Seconds in a loop that XLA:CPU compiles as one kernel: of an iteration ("step"); of a fusion of single elements or of
more ("single", "kernel"); of a function, and the latency of a division of one element; of each element of a simple or
heavy operation; of each element that a fusion reads or writes ("moved"), and that is copied or transposed; of a
product, and of each of its multiplications: where all dimensions of its matrix are multiples of a vector, where not,
and inside a fusion; of each element of a fusion that LLVM makes no vectors of ("singly"); of each trip of a short loop
inside, for each of its results and for each of their elements, beside its operations: XLA copies them, and each
result's kernel repeats what the others compute. Measured on Threefry's rounds; those of arrays with a short last
dimension are computed "singly", without vectors.
"""

SHORT_ROWS = range(3, 13)
"""Sizes of a last dimension whose loop LLVM writes out. Measured: 40 to 60 us for 1,280 random numbers where others
take 10 to 15.
"""

FAR = 2.0
"""By how much longer products take whose factors a core's own cache does not hold. Measured: 0.045 to 0.095 ns a
multiplication.
"""

RUN_SECONDS, PIECED_SECONDS = 8e-9, 3e-10
"""Seconds of XLA:CPU for a contiguous run of elements that it copies where arrays are cut or joined, or that its
library reduces (5 to 10 ns where 80,000 elements lie in runs of two); and each element of short runs that are copied.
"""

VECTOR_CLOCKS, WARP_CLOCKS = (0.6, 10.0), (1.0, 20.0)
"""Clocks of XLA's kernels for a simple operation and for a function: on a vector of a CPU, measured; on a warp."""

SUMMED, SUMMED_TO_ONE, SUMMED_BY_LIBRARY = 2.3e-10, 1.1e-9, 1.2e-10
"""Seconds of XLA:CPU to reduce an element: in rows or columns; to one number window by window; and by its library of
kernels.
"""

SUMMED_SEVERAL, SUMMED_SEVERAL_LONG = 5e-10, 2.2e-9
"""Seconds of XLA:CPU to reduce an element of several arrays at once, as ``argmax`` does: of at most a window of them,
and of more. Measured: 0.3 to 0.4 ns of 16, 1.3 to 2.4 ns of 64 and more.
"""

WINDOW = 32
"""The elements of a window of XLA:CPU's reductions to one number."""

LIBRARY_ELEMENTS, LIBRARY_SECONDS = 4096, 1.25e-6
"""The fewest elements of a reduction that XLA:CPU leaves to its library of kernels (YNNPACK), and the seconds of a call
of it. Measured in loops over arrays of 5,120 to 16,384 elements.
"""


SCANNED = 6e-9
"""Seconds of XLA:CPU for an element of a scan, which it computes in overlapping windows. Measured: 6 to 10 ns of 200 to
2,048 places.
"""

SORTED = 1.5e-8
"""Seconds of XLA:CPU for each step of a comparison sort, ``n log2 n`` of each row. Measured: 13 to 16 ns of rows of 8
to 256 elements.
"""

FACTORED = {
    "cholesky": (2e-7, 7e-9, 0.0),
    "solve": (1.2e-7, 3e-9, 2e-10),
    "lu": (2.5e-7, 1.3e-8, 0.0),
    "reflections": (2.5e-7, 1.3e-8, 0.0),
    "reflected": (2.5e-7, 1.3e-8, 0.0),
}
"""Seconds of LAPACK for each matrix of a call, for each of its elements, and for each of them and each right side.
Measured with 100 and 1,000 matrices of 2 to 16 rows, in float32 and float64; QR as LU.
"""


def step_seconds(node: Node, body: Graph, device: Device) -> float:
    """Return the seconds of one iteration of a ``while`` node as XLA runs it, with ``body`` as XLA wrote it."""
    if device.target.inlines_loops and ONE_KERNEL in node.attributes:
        return in_one_kernel_seconds(body, device) + _copied_seconds(node)
    return xla_seconds(body, device)


def _copied_seconds(node: Node) -> float:
    """Return the seconds in which XLA copies carried values in an iteration of a loop."""
    return IN_ONE_KERNEL_SECONDS["copied"] * node.attributes.get(COPIED, 0)


def is_by_vector(body: Graph, dot: Node) -> bool:
    """Return whether a product is that of a matrix and a vector."""
    return min(body[o].tensor.size for o in dot.operands) <= prod(steps_of(body, dot))


def _slowness(body: Graph, dot: Node, device: Device, by_tensor_cores: bool = False) -> float:
    """Return the ratio of a product's time to that of its operations at the device's peak in f32."""
    if device.target.lanes_are_vectors and is_by_vector(body, dot):
        sizes = [body[o].tensor.size for o in dot.operands]
        matrix = sizes.index(max(sizes))
        side = ("lhs_contracting_dims", "rhs_contracting_dims")[matrix]
        by_columns = tuple(dot.attributes.get(side, ())) == (0,)
        way = "fused" if _is_fused(body, dot) else ("columns" if by_columns else "rows")
        return device.multiprocessors * device.fp32_lanes / VECTOR_PRODUCT_CLOCK[way]
    slowness = 1 / device.target.product_share
    # A CPU core starts two vector multiplications per clock.
    if not device.target.lanes_are_vectors:
        takes = by_tensor_cores and has_default_precision(dot)
        unit = device.matrix_unit(body[dot.operands[0]].tensor.dtype) if takes else None
        return slowness if unit is None else slowness * device.fp32_lanes / unit.rate
    products = dot.tensor.size * prod(steps_of(body, dot))
    slowness = slowness / 2 + PACK_CLOCKS * body[dot.operands[0]].tensor.size * device.fp32_lanes / products
    return slowness * (device.multiprocessors if products <= SHARED_PRODUCT else 1)


def _is_fused(body: Graph, node: Node) -> bool:
    """Return whether XLA's kernel of a node has others in it."""
    return sum(n.kernel == node.kernel for n in body.nodes) > 1


def _multiplied(body: Graph, dot: Node, device: Device) -> str:
    """Return the key of ``IN_ONE_KERNEL_SECONDS`` for the multiplications of a product."""
    if _is_fused(body, dot):
        return "multiplied_in_fusion"
    matrix = max((body[o].tensor for o in dot.operands), key=lambda t: t.size)
    return "multiplied_unevenly" if any(d % device.warp_size for d in matrix.dims) else "multiplied"


def _joins(body: Graph, node: Node) -> bool:
    """Return whether a slice at places that are data is of arrays joined in the same fusion: a roll by data."""
    joined = body[node.operands[0]]
    return joined.op == "concatenate" and bool(node.kernel) and joined.kernel == node.kernel


def in_one_kernel_seconds(body: Graph, device: Device) -> float:
    """Return the seconds of one iteration of a loop that XLA:CPU compiles as one kernel."""
    counts = dict.fromkeys(IN_ONE_KERNEL_SECONDS, 0.0)
    counts["step"] = 1.0
    kernels = {n.kernel for n in body.nodes if n.kernel}
    large = {n.kernel for n in body.nodes if n.kernel and _written(body, n) > FEW}
    counts["single"], counts["kernel"] = len(kernels - large), len(large)
    waiting = chain(body, zip(body.parameters, body.results, strict=False), xla_clocks) / (device.clock_ghz * 1e9)
    counts["moved"] = _moved(body)
    pieced = sum(_pieced_seconds(body, n) for n in body.nodes)
    summed = sum(_reduce_seconds(body, n) for n in body.nodes if n.op == "reduce")
    summed += sum(_ordered_seconds(body, n) for n in body.nodes if n.op == "reduce-window")
    for n in body.nodes:
        trips = n.attributes.get(ROLLED, 0)
        counts["rolled"] += trips
        if trips:
            is_short = n.tensor.dims[-1] in SHORT_ROWS
            counts["rolled_singly" if is_short else "rolled_element"] += trips * n.tensor.size
        if n.op == "dot":
            counts["product"] += 1
            lanes = 2 if n.tensor.dtype == "f64" else 1
            counts[_multiplied(body, n, device)] += lanes * n.tensor.size * prod(steps_of(body, n))
        elif n.op == "dynamic-slice" and _joins(body, n):
            counts["singly"] += n.tensor.size
        elif n.op == "transpose" and _is_written(body, n):
            counts["transposed"] += n.tensor.size
        elif n.op in ELEMENTWISE and isinstance(n.type, TensorType):
            light, heavy = xla_weight(n) if n.op not in DIVISIONS or is_division(body, n) else (MULTIPLY_CLOCKS, 0.0)
            counts["light"] += n.tensor.size * light
            counts["heavy"] += n.tensor.size * heavy
            if n.tensor.size > 1 or n.op not in DIVISIONS:
                counts["function"] += heavy > 0.0
            else:
                counts["division"] += is_division(body, n)
    factors = {o for n in body.nodes if n.op == "dot" for o in n.operands}
    if sum(node_bytes(body[o]) for o in factors) > device.shared_per_block_optin:
        counts |= {kind: FAR * counts[kind] for kind in counts if kind.startswith("multiplied")}
    called = called_in(body.nodes)
    inner = sum(times * (in_one_kernel_seconds(b, device) + _copied_seconds(n)) for n, b, times in called)
    return (
        inner + waiting + summed + pieced + sum(IN_ONE_KERNEL_SECONDS[what] * count for what, count in counts.items())
    )


def _pieced_seconds(body: Graph, node: Node) -> float:
    """Return the seconds in which XLA cuts an array, or joins several, run by run of contiguous elements."""
    if not isinstance(node.type, TensorType) or not _is_written(body, node):
        return 0.0
    dims, runs = node.type.dims, 0
    if node.op == "slice":
        whole = body[node.operands[0]].tensor.dims
        cut = [d for d in range(len(dims)) if dims[d] != whole[d]]
        runs = prod(dims[: cut[-1]]) if cut else 0
    elif node.op == "concatenate":
        runs = len(node.operands) * prod(dims[: node.attributes["dimensions"][0]])
    return min(runs * RUN_SECONDS, node.type.size * PIECED_SECONDS) if runs else 0.0


def _is_written(body: Graph, node: Node) -> bool:
    """Return whether XLA has a kernel that writes a node's value alone."""
    return bool(node.kernel) and any(body[u].kernel != node.kernel for u in body.users[node.id])


def _reduce_seconds(body: Graph, node: Node) -> float:
    """Return the seconds of XLA:CPU for a reduction, without its operands."""
    reduced = body[node.operands[0]].tensor
    if _is_of_library(body, node):
        return reduced.size * SUMMED_BY_LIBRARY + reduced.size // reduced.dims[-1] * RUN_SECONDS
    if len(node.operands) > 2:
        return reduced.size * (SUMMED_SEVERAL_LONG if is_windowed(body, node) else SUMMED_SEVERAL)
    return reduced.size * (SUMMED_TO_ONE if node.tensor.size == 1 and is_windowed(body, node) else SUMMED)


def _ordered_seconds(body: Graph, node: Node) -> float:
    """Return the seconds of XLA:CPU for a scan or a sort; 0 for other windows."""
    if (sort := sort_of(body, node)) is not None:
        return SORTED * body[node.operands[0]].tensor.size * log2(max(2, sort.size))
    return SCANNED * node.tensor.size if scan_of(body, node) is not None else 0.0


def is_windowed(body: Graph, node: Node) -> bool:
    """Return whether XLA:CPU reduces windows of the elements first, and then their results with another kernel."""
    dims = body[node.operands[0]].tensor.dims
    return any(dims[d] > WINDOW for d in node.attributes["dimensions"]) and not _is_of_library(body, node)


def _is_of_library(body: Graph, node: Node) -> bool:
    reduced = body[node.operands[0]].tensor
    if len(node.operands) > 2 or reduced.size < LIBRARY_ELEMENTS or reduced.dtype not in ("f32", "bf16", "f16"):
        return False
    return combines_by(node.graphs["to_apply"], 0) in ("add", "maximum", "minimum")


def _written(body: Graph, node: Node) -> int:
    """Return the number of elements of a node that XLA computes: of an in-place update only the updated ones."""
    if not isinstance(node.type, TensorType):
        return 1
    return body[node.operands[1]].tensor.size if node.op == "dynamic-update-slice" else node.tensor.size


def _moved(body: Graph) -> float:
    """Return the number of elements that XLA's fusions read from each other and write."""
    written, read = 0, dict[tuple[str, int], int]()
    for n in body.nodes:
        if not n.kernel or not isinstance(n.type, TensorType):
            continue
        operands = [body[o] for o in n.operands if isinstance(body[o].type, TensorType)]
        if n.op == "dynamic-update-slice":  # in place
            operands = operands[1:2]
        elif n.id in body.result_set or any(body[u].kernel != n.kernel for u in body.users[n.id]):
            written += n.tensor.size
        for o in operands if n.op != "dot" else ():
            if o.kernel != n.kernel and o.op != "constant":
                whole = n.op in ("reduce", "dynamic-update-slice") or n.op in ELEMENTWISE
                here = o.tensor.size if whole else min(o.tensor.size, n.tensor.size)
                read[n.kernel, o.id] = min(o.tensor.size, here + read.get((n.kernel, o.id), 0))
    return written + sum(read.values())


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
    if device.target.lanes_are_vectors:
        calls += sum(_pieced_seconds(body, n) for n in body.nodes)
        calls += LIBRARY_SECONDS * sum(n.op == "reduce" and _is_of_library(body, n) for n in body.nodes)
    return len(kernels) * device.target.kernel_seconds + calls + work_seconds(body, body.nodes, device)


def work_seconds(body: Graph, nodes: Iterable[Node], device: Device, *, by_tensor_cores: bool = False) -> float:
    """Return the seconds of XLA's kernels for some nodes, without their launches; ``by_tensor_cores`` where products
    are large enough for those of a GPU, unlike those of a loop's step.
    """
    products = elementwise = summed = inner = 0.0
    nodes = tuple(nodes)
    vectors = device.target.lanes_are_vectors
    weigh, each = (xla_weight, VECTOR_CLOCKS) if vectors else (warp_weight, WARP_CLOCKS)
    for node, called, times in called_in(nodes):
        is_one = ONE_KERNEL in node.attributes
        inner += times * (
            in_one_kernel_seconds(called, device) if is_one else work_seconds(called, called.nodes, device)
        )
    evaluated = _evaluated(body, nodes)
    for n in nodes:
        if n.op == "dot":
            products += n.tensor.size * prod(steps_of(body, n)) * _slowness(body, n, device, by_tensor_cores)
        elif n.op in ("reduce", PARTIAL):
            if vectors:
                summed += _reduce_seconds(body, n)
            else:
                elementwise += body[n.operands[0]].tensor.size
        elif vectors and n.op in ("reduce-window", "sort"):
            summed += _ordered_seconds(body, n)
        elif n.op in CALLED:
            summed += factored_seconds(body, n, device)
        elif n.op in ELEMENTWISE:
            light, heavy = weigh(n)
            elementwise += evaluated[n.id] * (each[0] * light + each[1] * heavy)
    rate = device.multiprocessors * device.fp32_lanes * device.clock_ghz * 1e9
    if vectors:  # One core does all but products.
        elementwise *= device.multiprocessors
    return inner + summed + (products + elementwise) / rate


def far_seconds(moved: int, device: Device) -> float:
    """Return the least seconds to read and write so many bytes: of what one core's cache holds, none."""
    return moved / device.memory_bandwidth if moved > device.shared_per_block_optin else 0.0


def factored_seconds(body: Graph, node: Node, device: Device) -> float:
    """Return the seconds of a CPU's library for a factorization or solve of small matrices; 0 for other nodes."""
    name = library_call(node)
    if name not in FACTORED or not device.target.lanes_are_vectors:
        return 0.0
    matrix, element, side = FACTORED[name]
    *batch, rows, columns = body[node.operands[0]].tensor.dims
    sides = body[node.operands[-1]].tensor.size / (prod(batch) * rows) if prod(batch) * rows else 0.0
    return prod(batch) * (matrix + rows * columns * (element + side * sides))


def _evaluated(body: Graph, nodes: Iterable[Node]) -> dict[int, int]:
    """Return how often XLA computes the elements of nodes: in a fusion, of what is broadcast there, once for each."""
    counts: dict[int, int] = {}
    for n in sorted(nodes, key=lambda n: -n.id):
        counts[n.id] = n.tensor.size if isinstance(n.type, TensorType) else 1
        for u in body.users[n.id] if n.kernel and n.op in ELEMENTWISE else ():
            is_wider = body[u].op in ELEMENTWISE or body[u].op in ("broadcast", "reshape", "transpose")
            if is_wider and body[u].kernel == n.kernel:
                counts[n.id] = max(counts[n.id], counts.get(u, 0))
    return counts


def sum_seconds(graph: Graph, node: Node, device: Device) -> float:
    """Return the seconds of a product or reduction of ``graph`` as XLA runs it: as two kernels where the sums are so
    long and so few that XLA splits each over several blocks.
    """
    size, steps = node.tensor.size, prod(steps_of(graph, node))
    blocks = size / PRODUCT_TILE if node.op == "dot" else size / device.warp_size
    split = not device.target.lanes_are_vectors and blocks < device.multiprocessors and steps >= PRODUCT_STEPS
    rate = device.multiprocessors * device.fp32_lanes * device.clock_ghz * 1e9
    return (1 + split) * device.target.kernel_seconds + size * steps * _slowness(graph, node, device) / rate
