"""The delta-evaluator: what a pattern saves over XLA's kernels, in seconds (2021 paper, section 5.4; 2019 paper, M(V) =
V / B(V)).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from math import prod

from msgspec import Struct

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import inner_sizes
from jax_stitch.analysis.new_pages import saved_on_results
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.traffic import MOST_LAST_BLOCK_BYTES, longest_row, moved_bytes
from jax_stitch.analysis.scans import further_kernels
from jax_stitch.analysis.sizes import is_of_one_number, node_bytes
from jax_stitch.analysis.sorts import shared_bytes
from jax_stitch.analysis.support import is_rematerializable, is_view, reason_left
from jax_stitch.devices import Device
from jax_stitch.fusion.columns import column_bytes, column_bytes_of_xla
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.rewrites.reductions import steps_of
from jax_stitch.graph.scans import scan_of
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.cost.weights import own_weight, plain_weight

CALLS = "calls"
"""Attribute of the last operation of a product that was written out: the launches that last as long as the calls of a
library which XLA makes of it.
"""


def as_calls(seconds: float, device: Device) -> Mapping[str, int]:
    """Return the attribute of an operation in whose place XLA takes so long, beside its launch and its bytes."""
    launches = round(seconds / device.target.launch_seconds)
    return {CALLS: launches} if launches else {}


class XlaKernels:
    """The kernels that XLA has for a graph's nodes, and what they read and write.

    Nodes that are ``taken``, by stitched kernels, are no longer among those of XLA's.
    """

    def __init__(self, graph: Graph, taken: Collection[int] = ()):
        self._graph = graph
        self._taken = frozenset(taken)
        self._results = graph.result_set
        self._known: dict[frozenset[int], tuple[int, frozenset[int]]] = {}
        self._members: dict[str, set[int]] = defaultdict(set)
        self._kernels = [(node.kernel if node.id not in self._taken else None) or f"%{node.id}" for node in graph.nodes]
        for node in graph.nodes:
            if not is_rematerializable(node) and node.op != "parameter" and node.id not in self._taken:
                self._members[self._kernels[node.id]].add(node.id)

    def without(self, nodes: Collection[int]) -> XlaKernels:
        """Return the same where these nodes are taken as well."""
        other = copy(self)
        other._taken = self._taken | frozenset(nodes)
        other._known, other._members, other._kernels = {}, self._members.copy(), self._kernels.copy()
        for i in nodes:
            kernel, other._kernels[i] = self._kernels[i], f"%{i}"
            if i in other._members[kernel]:
                other._members[kernel] = other._members[kernel] - {i}
        return other

    def of(self, i: int) -> str:
        """Return the XLA kernel of a node; a node of no kernel counts as one by itself."""
        return self._kernels[i]

    def is_written(self, i: int) -> bool:
        """Return whether XLA writes a value to memory: some other kernel reads it, or it is a result."""
        own, kernels = self._kernels[i], self._kernels
        return i in self._results or any(kernels[u] != own for u in self._graph.users[i])

    def _bytes_of(self, group: Collection[int]) -> tuple[int, frozenset[int]]:
        """Return bytes that XLA moves for nodes of one of its kernels, and the values of other kernels that they read.
        Asked of the same groups again and again."""
        key = frozenset(group)
        known = self._known.get(key)
        if known is None:
            nodes, kernels, own = self._graph.nodes, self._kernels, self._kernels[next(iter(group))]
            outside = {o for i in group for o in nodes[i].operands if kernels[o] != own}
            reads = frozenset(o for o in outside if not is_rematerializable(nodes[o]))
            moved = 0
            if not all(is_view(nodes[i]) for i in group):
                moved = sum(node_bytes(nodes[i]) for i in (*reads, *filter(self.is_written, group)))
            known = self._known[key] = moved, reads
        return known

    def _remains(self, kernel: str, rest: Collection[int], members: Collection[int]) -> bool:
        """Return whether XLA still needs a kernel when ``members`` are taken out: some of the rest is read by others,
        or is a result.
        """
        for i in rest:
            if i not in self._results and is_of_one_number(self._graph, i):
                continue  # Whoever reads it rematerialises it.
            if i in self._results or reason_left(self._graph, self._graph[i]) is not None:
                return True
            if any(self.of(u) != kernel and u not in members for u in self._graph.users[i]):
                return True
        return False

    def whole(self, members: Collection[int]) -> set[str]:
        """Return the XLA kernels that are no longer needed when ``members`` are taken out."""
        touched = {self.of(i) for i in members if self._graph[i].kernel}
        taken = set(members)
        return {k for k in touched if not self._remains(k, self._members[k] - taken, taken)}

    def split(self, members: Collection[int]) -> tuple[int, int, int, int]:
        """Return what taking ``members`` out of XLA's kernels means.

        Returns how many kernels are taken whole and how many in part, the bytes that XLA moves for the members, and the
        bytes that the rest of the kernels taken in part has to read on top of what XLA reads.
        """
        graph = self._graph
        groups: dict[str, set[int]] = defaultdict(set)
        for i in members:
            groups[self._kernels[i]].add(i)
        whole = moved = extra = 0
        for kernel, group in groups.items():
            rest = self._members[kernel] - group
            bytes_moved, reads = self._bytes_of(group)
            moved += bytes_moved
            if not self._remains(kernel, rest, members):
                whole += any(graph[i].kernel for i in group)
                continue
            needed = {o for i in rest for o in graph[i].operands if not is_rematerializable(graph[o])}
            extra += sum(node_bytes(graph[o]) for o in needed & (group | reads))
        return whole, len(groups) - whole, moved, extra


class Gain(Struct, frozen=True):
    """Seconds saved, and the terms it is the sum of."""

    memory: float
    """Reduced memory time, that of pages made for results included."""
    calls: float
    """Reduced launches, times the cost of one."""
    penalty: float
    """Time lost to work that is split over too few rows to fill the device, and to memory that is accessed with a
    stride.
    """
    merged: int
    """XLA kernels that the pattern replaces whole."""

    @property
    def seconds(self) -> float:
        return self.memory + self.calls - self.penalty


def evaluate(graph: Graph, origins: XlaKernels, pattern: Pattern, device: Device) -> Gain:
    """Return what the pattern saves as one kernel, over the kernels that XLA has for its nodes."""
    whole, _, before, extra = origins.split(pattern.nodes)
    whole += more_launches(graph, pattern.nodes) + sum(graph[i].attributes.get(CALLS, 0) for i in pattern.nodes)
    after = moved_bytes(graph, pattern) + extra
    computed = computed_bytes(graph, pattern.inside, device)
    columns = column_bytes(graph, pattern, device) - column_bytes_of_xla(graph, pattern.nodes, device)
    moved = effective_bytes(graph, pattern) + extra
    slow = columns + bytes_alone(graph, pattern, device, moved, may_share_rows(graph, pattern))
    launch = device.target.launch_seconds
    return Gain(
        (before - after) / device.memory_bandwidth + saved_on_results(graph, pattern.nodes, device),
        launch * (whole - 1),
        (slow - max(after, computed)) / device.memory_bandwidth,
        whole,
    )


def bytes_alone(graph: Graph, pattern: Pattern, device: Device, moved: int, clusters: bool) -> float:
    """Return bytes that the whole device moves in the time that a pattern takes for its operations and for what is
    ``moved``, if it is alone there, with rows too few to fill it perhaps. With ``clusters``, these may take its rows.
    """
    blocks = full_blocks(graph, pattern, device, clusters)
    # About half of the multiprocessors, each with a full block, saturate the memory; arithmetic takes all of them.
    moving = min(1.0, (1 if device.target.lanes_are_vectors else 2) * blocks / device.multiprocessors)
    computing = min(1.0, blocks / device.multiprocessors)
    return max(moved / moving, computed_bytes(graph, pattern.inside, device) / computing)


def computed_bytes(graph: Graph, nodes: Iterable[int], device: Device) -> float:
    """Return bytes that a GPU could move in the time that all its multiprocessors take for the operations of these
    nodes.
    """
    return 0.0 if device.target.lanes_are_vectors else operation_bytes((graph[i] for i in nodes), device)


def operation_bytes(nodes: Iterable[Node], device: Device) -> float:
    """Return bytes that a device could move in the time that it takes for elementwise operations, and for slices, which
    are what windows read: of each the elements are loaded once more.
    """
    light, heavy = device.target.operation_bytes
    weigh = own_weight if device.target.lanes_are_vectors else plain_weight
    total = 0.0
    for n in nodes:
        if not isinstance(n.type, TensorType):
            continue
        if n.op in ELEMENTWISE:
            simple, functions = weigh(n)
            total += n.type.size * (light * simple + heavy * functions)
        elif n.op == "slice":
            total += n.type.size * device.target.load_bytes
    return total


def more_launches(graph: Graph, nodes: Collection[int]) -> int:
    """Return launches of XLA for these nodes beyond one for each of its kernels: of scans, and of reductions in
    steps.
    """
    return further_kernels(graph, nodes) + sum(steps_of(graph[i]) - 1 for i in nodes if graph[i].op == "reduce")


def effective_bytes(graph: Graph, pattern: Pattern) -> int:
    """Return the same with what costs more counted as bytes: strided memory accesses, and lanes that reduce alone."""
    slow = STRIDED_COST * strided_bytes(graph, pattern) + KEPT_COST * kept_bytes(graph, pattern)
    return moved_bytes(graph, pattern) + slow


STRIDED_COST = 3
"""Further bytes moved for each byte whose neighbours in memory are not read by neighbouring threads: memory comes in
sectors.
"""


KEPT_COST = 2
"""Bytes moved in the time that it takes to reduce one byte where a reduction inside the row keeps some places: one lane
does each.
"""


def kept_bytes(graph: Graph, pattern: Pattern) -> int:
    """Return bytes that reductions inside the row read where their results have several places per row."""
    read = 0
    for i in pattern.nodes:
        node = graph[i]
        if node.op == "reduce" and i in pattern.bindings and inner_sizes(pattern.bindings[i]):
            read += node_bytes(graph[node.operands[0]])
    return read


def fits_a_block(graph: Graph, pattern: Pattern, device: Device) -> bool:
    """Return whether what a block has to hold of one row, and of partial results, fits into its shared memory and
    registers.
    """
    if device.target.lanes_are_vectors:
        return True
    shared = partial_places = 0
    for i in pattern.nodes:
        node = graph[i]
        if node.op != "reduce":
            continue
        kept = pattern.bindings.get(i)
        if kept is None:
            partial_places += prod(inner_sizes(pattern.bindings[node.operands[0]]))
        elif inner_sizes(kept):
            # Twice: runs of long reductions are kept besides.
            shared += 2 * 8 * prod(inner_sizes(kept)) * (len(node.operands) // 2)
    shared += shared_bytes(graph, pattern.nodes)
    if partial_places > 16 * device.threads_per_block:
        shared += 8 * partial_places
    return shared <= device.shared_per_block_optin


def strided_bytes(graph: Graph, pattern: Pattern) -> int:
    """Return bytes of buffers whose fastest dimension is not the one that neighbouring threads run along.

    That is either the rows or the places inside a row, whichever more bytes lie along.
    """
    along = _bytes_along(graph, pattern)
    return along["neither"] + min(along["rows"], along["places"])


def _bytes_along(graph: Graph, pattern: Pattern) -> dict[str, int]:
    """Return bytes of buffers by what their neighbours in memory are: neighbouring rows, places of a row, or
    neither.
    """
    along = {"rows": 0, "places": 0, "neither": 0}
    for i in (*pattern.inputs, *pattern.outputs):
        binding = pattern.bindings.get(i)
        if binding is None:
            continue
        last = next((dim[-1] for dim in reversed(binding) if dim), None)
        if last is None:
            continue
        kind = "places" if last.stride is None else ("rows" if last.stride == 1 else "neither")
        along[kind] += node_bytes(graph[i])
    return along


def full_blocks(graph: Graph, pattern: Pattern, device: Device, clusters: bool) -> float:
    """Return how many full blocks a split into this many rows can have: one per row at most, or one cluster of blocks
    where ``clusters`` may take its rows, or one per sector of rows. On a CPU, a row.
    """
    if device.target.lanes_are_vectors:
        return pattern.rows
    along = _bytes_along(graph, pattern)
    # Where rows are neighbours in memory a block has at least a sector's.
    neighbours = 8 if along["rows"] > along["places"] else 1
    most = device.threads_per_block
    if neighbours == 1 and clusters:
        most *= device.cluster_blocks
    return pattern.rows / neighbours * min(longest_row(graph, pattern) * neighbours, most) / device.threads_per_block


def may_share_rows(graph: Graph, pattern: Pattern) -> bool:
    """Return whether a cluster of blocks could take a row together: what blocks have to tell each other are reductions
    of whole rows and parts of numbers, and what follows is no further phase of the kernel, whose blocks would wait for
    each other. One row is all there is: phases share it out over all blocks.
    """
    nodes = [graph[i] for i in pattern.nodes]
    if pattern.rows == 1 or any(n.op == "sort" or scan_of(graph, n) is not None for n in nodes):
        return False
    after = [graph[u] for i in pattern.outputs for u in graph.users[i] if u not in pattern.nodes]
    if any(node_bytes(n) > MOST_LAST_BLOCK_BYTES and reason_left(graph, n) is None for n in after):
        return False
    reduces = [n for n in nodes if n.op in ("reduce", PARTIAL)]
    whole = [n for n in reduces if n.id in pattern.bindings and prod(inner_sizes(pattern.bindings[n.id])) == 1]
    across = [n for n in reduces if n.id not in pattern.bindings]
    sizes = [node_bytes(n) // (pattern.blocks or 1) for n in across]
    return bool(whole) and len(whole) + len(across) == len(reduces) and max(sizes, default=0) <= MOST_NUMBER_BYTES


MOST_NUMBER_BYTES = 16
"""The bytes of one number, or of a few that belong together."""
