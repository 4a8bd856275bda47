"""Where patterns start to grow: a value and a split of the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod

from msgspec import Struct

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import Binding, result_dims, rows_of
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.graph.scans import scan_of
from jax_stitch.graph.sorts import sort_of


class Seed(Struct, frozen=True):
    """A value and the split of it to grow a region from."""

    node: int
    binding: Binding
    rows: int


SeedsOf = Callable[[Graph, set[int], Device], Iterable[Seed]]
"""The seeds of a graph among the nodes that are still free."""


def reduction_seeds(graph: Graph, free: set[int], device: Device) -> Iterator[Seed]:
    """For each reduction, scan and sort: rows are what it keeps; or, where that is little, all there is to reduce
    (across rows).
    """
    seen: set[tuple[int, Binding]] = set()
    for i in sorted(free):
        node = graph[i]
        scan = scan_of(graph, node)
        along = scan if scan is not None else sort_of(graph, node)
        if along is not None:
            dims = result_dims(graph, node)
            others = [d for d in range(len(dims)) if d != along.dimension]
            yield Seed(i, rows_of(dims, others), prod(dims[d] for d in others))
        if node.op != "reduce":
            continue
        first = graph[node.operands[0]]
        remaining = [d for d in range(len(first.tensor.dims)) if d not in node.attributes["dimensions"]]
        dims = first.tensor.dims
        rows = prod(dims[d] for d in remaining)
        operand_binding = rows_of(dims, remaining)
        result = tuple(operand_binding[d] for d in remaining)
        candidates = [Seed(i, result, rows)]
        if rows > 1 and len(remaining) > 1 and dims[remaining[-1]] > 1:
            outer = prod(dims[d] for d in remaining[:-1])
            if outer > 1:
                coarse = rows_of(dims, remaining[:-1])
                candidates.append(Seed(i, tuple(coarse[d] for d in remaining), outer))
        if first.op != PARTIAL and rows * 256 < first.tensor.size:
            reduced = [d for d in range(len(dims)) if d not in remaining]
            candidates.append(Seed(first.id, rows_of(dims, reduced), prod(dims[d] for d in reduced)))
        for seed in candidates:
            if (seed.node, seed.binding) not in seen:
                seen.add((seed.node, seed.binding))
                yield seed


_NO_ELEMENTS = frozenset({"reduce", "reduce-window", "sort", "get-tuple-element", PARTIAL, "broadcast"})
"""Operations whose elements are not computed one by one, or not worth a kernel."""


def elementwise_seeds(graph: Graph, free: set[int], device: Device) -> Iterator[Seed]:
    """Every value is its own set of rows: thread composition."""
    ordered = sorted(free, key=lambda i: -node_bytes(graph[i]))
    for i in ordered:
        node = graph[i]
        if isinstance(node.type, TensorType) and node.op not in _NO_ELEMENTS:
            yield Seed(i, rows_of(node.type.dims, range(len(node.type.dims))), node.type.size)
