"""Sorts inside kernels: a row's elements stand in the shared memory of one block, which puts them in order."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, Node
from jax_stitch.graph.sorts import fields_of, sort_of

STEP = 64
"""Arrays in shared memory start at multiples of as many bytes."""

INDEX = 4
"""Bytes of the place that an element of a stable sort came from."""


def offsets(graph: Graph, node: Node, rows: int) -> tuple[tuple[int, ...], int]:
    """Return where the arrays of a sort's fields start in shared memory, in bytes, for so many rows at a time: then
    that of the places, where it is stable. And the bytes of all.
    """
    sort = sort_of(graph, node)
    assert sort is not None
    widths = [_width(graph[o]) for o in fields_of(node)] + [INDEX] * sort.stable
    starts, end = [], 0
    for width in widths:
        starts.append(end)
        end += -(-rows * sort.size * width // STEP) * STEP
    return tuple(starts), end


def shared_bytes(graph: Graph, nodes: Iterable[int]) -> int:
    """Return the shared memory that a block needs for the sorts among ``nodes``, one row at a time."""
    return sum(offsets(graph, graph[i], 1)[1] for i in nodes if graph[i].op == "sort")


def refused(graph: Graph, device: Device) -> dict[int, str]:
    """Return the sorts that stay with XLA, and why: of rows that are too long, two of which have to fit into a block;
    on a CPU of plain numbers besides.
    """
    reasons: dict[int, str] = {}
    for node in graph.nodes:
        sort = sort_of(graph, node)
        if sort is None:
            continue
        if device.target.has_sort_library:
            if _is_of_plain_numbers(node):
                reasons[node.id] = "a sort of numbers by themselves, for which XLA has a library"
            elif sort.size > LONGEST_ON_CPU:
                reasons[node.id] = f"a sort of rows of {sort.size:,} places, of which a core's cache holds too few"
        elif (size := offsets(graph, node, 1)[1]) > device.shared_per_block_optin // 2:
            half = device.shared_per_block_optin // 2
            reasons[node.id] = f"a sort of rows of {size:,} bytes: a block sorts rows of up to {half:,} bytes"
    return reasons


LONGEST_ON_CPU = 1 << 15
"""Places of the longest row that one core sorts in its own cache."""


def _is_of_plain_numbers(node: Node) -> bool:
    """Return whether one array is put in order by a single comparison, as integers are: XLA's CPU compiler then calls a
    library's sort in place of one that calls back to compare.
    """
    compared = [n.op for n in node.graphs["to_apply"].nodes if n.op != "parameter"]
    return len(node.operands) == 1 and compared == ["compare"]


def _width(node: Node) -> int:
    """Return bytes of an element as it is computed: halves are floats."""
    return max(ELEMENT_TYPES[node.tensor.dtype].numpy.itemsize, 4 if node.tensor.dtype in ("f16", "bf16") else 1)
