"""Which gradients of tables are read only by operations for each element, and by sums over all of them."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from msgspec import Struct

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.combiners import combines_by, is_neutral
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.row_scatters import row_scatter
from jax_stitch.ir.operations import ELEMENTWISE

LONGEST = 200
"""Operations between a gradient and what is made of it."""

MORE_KERNELS = 8
"""Launches that XLA needs to find rows and to write them, for each table."""

IN_MEMORY = frozenset({"parameter", "get-tuple-element", "dot", "scatter", "while", "dynamic-update-slice"})
"""What makes values of which some rows can be read: they are in memory."""


class Table(Struct, frozen=True, eq=False):
    """A scatter into one number, and what is made of it for each element."""

    scatter: Node
    between: frozenset[int]
    """The nodes that depend on the scatter: each has an element for each of the table."""
    exits: tuple[int, ...]
    """Those that are results."""
    sums: tuple[int, ...]
    """The sums over all elements of some of them. Nothing else reads any."""
    read: frozenset[int]
    """The values in memory that they are made of besides."""


def table_of(graph: Graph, scatter: Node) -> Table | None:
    """Return a scatter as the gradient of a table; None where something needs the whole of it."""
    if len(scatter.operands) != 3 or scatter.id in graph.result_set or not is_splat(graph, scatter.operands[0]):
        return None
    if graph[scatter.operands[1]].tensor.dtype not in ("s32", "s64") or row_scatter(graph, scatter) is None:
        return None
    between, sums = {scatter.id}, []
    waiting = [scatter.id]
    while waiting:
        for u in graph.users[waiting.pop()]:
            if u not in between and _is_for_each(graph[u], scatter):
                between.add(u)
                waiting.append(u)
            elif u not in between:
                sums.append(u)
    is_whole = all(i in graph.result_set or graph.users[i] for i in between)
    if len(between) > LONGEST or not is_whole:
        return None
    zeros = _zeros(graph, between)
    if not all(_is_sum(graph, zeros, i) for i in sums):
        return None
    read = _read(graph, between, scatter.tensor.dims)
    if read is None:
        return None
    exits = sorted(i for i in between if i in graph.result_set)
    return Table(scatter, frozenset(between), tuple(exits), tuple(sorted(set(sums))), frozenset(read))


def _is_for_each(node: Node, scatter: Node) -> bool:
    return node.op in ELEMENTWISE and isinstance(node.type, TensorType) and node.tensor.dims == scatter.tensor.dims


def _is_sum(graph: Graph, zeros: Collection[int], i: int) -> bool:
    """Return whether a node adds up all elements of a value that is zero wherever no update came."""
    node = graph[i]
    if node.op != "reduce" or len(node.operands) != 2 or node.operands[0] not in zeros or node.tensor.dims != ():
        return False
    combiner = node.graphs["to_apply"]
    return combines_by(combiner, 0) == "add" and is_neutral(combiner, graph[node.operands[1]])


def _zeros(graph: Graph, between: Collection[int]) -> set[int]:
    """Return those of these nodes that are zero wherever no update came, as far as is easily told."""
    zeros: set[int] = set()
    for i in sorted(between):
        node = graph[i]
        if node.op == "scatter":
            initial = graph[graph[node.operands[0]].operands[0]].literal
            is_zero = initial is not None and bool(initial.reshape(()) == 0)
        else:
            is_zero = node.op in _ZERO_OF_ZERO and zeros.issuperset(node.operands)
        if is_zero:
            zeros.add(i)
    return zeros


_ZERO_OF_ZERO = frozenset({"multiply", "abs", "negate", "convert", "sqrt", "add", "subtract"})


def is_splat(graph: Graph, i: int) -> bool:
    """Return whether an array has one number everywhere."""
    return graph[i].op == "broadcast" and graph[graph[i].operands[0]].tensor.dims == ()


def _read(graph: Graph, between: set[int], dims: tuple[int, ...]) -> set[int] | None:
    """Return the values in memory that these nodes read, or what is computed of such for each element; None where they
    read something else.
    """
    read: set[int] = set()
    seen: set[int] = set()
    scatters = {i for i in between if graph[i].op == "scatter"}
    waiting = [o for i in between - scatters for o in graph[i].operands if o not in between]
    while waiting:
        i = waiting.pop()
        if i in seen or graph[i].tensor.dims == () or is_splat(graph, i):
            continue
        seen.add(i)
        if graph[i].tensor.dims != dims or len(seen) > LONGEST:
            return None
        if graph[i].op in ELEMENTWISE:
            waiting += graph[i].operands
        elif graph[i].op in IN_MEMORY:
            read.add(i)
        else:
            return None
    return read


def pays(graph: Graph, table: Table, device: Device) -> bool:
    """Return whether the gradient takes longer to write and to read than the rows that are touched to find and to
    write.
    """
    scatter = table.scatter
    updates = graph[scatter.operands[2]]
    places = prod(scatter.tensor.dims) // max(1, updates.tensor.size // _count(graph, scatter))
    if places >= 2**31:
        return False
    more = (2 + len(table.read) + 2 * len(table.exits)) * node_bytes(updates) + 3 * places * 4
    saved = (2 * node_bytes(scatter) - more) / device.memory_bandwidth
    scattered = len(table.exits) * updates.tensor.size * device.target.scatter_seconds
    return saved > MORE_KERNELS * device.target.launch_seconds + scattered


def _count(graph: Graph, scatter: Node) -> int:
    return graph[scatter.operands[1]].tensor.dims[0]
