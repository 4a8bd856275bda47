"""Seeds, from which patterns grow: a value and a split of the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod

from msgspec import Struct

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import Binding, result_dims, rows_of
from jax_stitch.analysis.results import Results
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.scans import scan_of
from jax_stitch.graph.sorts import sort_of


class Seed(Struct, frozen=True, eq=False):
    """A value and the split of it to grow a region from. Equal seeds of one graph are one object."""

    node: int
    binding: Binding
    rows: int


SeedsOf = Callable[[Graph, set[int], Device], Iterable[Seed]]
"""A function that returns the seeds of a graph among the nodes that are still free."""

_seeds: Results[tuple[int, Binding], Seed] = Results()
_seeds_along: Results[int, tuple[Seed, ...]] = Results()
_element_seeds: Results[int, Seed | None] = Results()
_bytes: Results[None, list[int]] = Results()


def reduction_seeds(graph: Graph, free: set[int], device: Device) -> Iterator[Seed]:
    """Yield the seeds of each reduction, scan and sort. Rows are the dimensions that it keeps, or, where these are
    small, those that it reduces (across rows).
    """
    seen: set[Seed] = set()
    known, one = _seeds_along.of(graph), _seeds.of(graph)
    for i in sorted(free):
        node = graph.nodes[i]
        if node.op not in _ALONG:
            continue
        if i not in known:
            made = _reduced(graph, node) if node.op == "reduce" else _scanned(graph, node)
            known[i] = tuple(one.setdefault((seed.node, seed.binding), seed) for seed in made)
        for seed in known[i]:
            if seed not in seen:
                seen.add(seed)
                yield seed


_ALONG = frozenset({"reduce", "reduce-window", "sort"})


def _scanned(graph: Graph, node: Node) -> Iterator[Seed]:
    """Yield the seed of a scan or a sort."""
    scan = scan_of(graph, node)
    along = scan if scan is not None else sort_of(graph, node)
    if along is not None:
        dims = result_dims(graph, node)
        others = [d for d in range(len(dims)) if d != along.dimension]
        yield Seed(node.id, rows_of(dims, others), prod(dims[d] for d in others))


def _reduced(graph: Graph, node: Node) -> Iterator[Seed]:
    """Yield the seeds of a reduction."""
    first = graph[node.operands[0]]
    remaining = [d for d in range(len(first.tensor.dims)) if d not in node.attributes["dimensions"]]
    dims = first.tensor.dims
    rows = prod(dims[d] for d in remaining)
    operand_binding = rows_of(dims, remaining)
    yield Seed(node.id, tuple(operand_binding[d] for d in remaining), rows)
    if rows > 1 and len(remaining) > 1 and dims[remaining[-1]] > 1:
        outer = prod(dims[d] for d in remaining[:-1])
        if outer > 1:
            coarse = rows_of(dims, remaining[:-1])
            yield Seed(node.id, tuple(coarse[d] for d in remaining), outer)
    if first.op != PARTIAL and rows * 256 < first.tensor.size:
        reduced = [d for d in range(len(dims)) if d not in remaining]
        yield Seed(first.id, rows_of(dims, reduced), prod(dims[d] for d in reduced))


_NO_ELEMENTS = frozenset({"reduce", "reduce-window", "sort", "get-tuple-element", PARTIAL, "broadcast"})
"""Operations whose elements are not computed one by one, or are not worth a kernel."""


def elementwise_seeds(graph: Graph, free: set[int], device: Device) -> Iterator[Seed]:
    """Yield a seed for each value, with a row for each element (thread composition), the largest values first."""
    sizes = _bytes.get(graph, None, lambda: [node_bytes(n) for n in graph.nodes])
    known, one = _element_seeds.of(graph), _seeds.of(graph)
    for i in sorted(free, key=sizes.__getitem__, reverse=True):
        if i not in known:
            made = _element_seed(graph.nodes[i])
            known[i] = made and one.setdefault((made.node, made.binding), made)
        if (seed := known[i]) is not None:
            yield seed


def _element_seed(node: Node) -> Seed | None:
    if not isinstance(node.type, TensorType) or node.op in _NO_ELEMENTS:
        return None
    return Seed(node.id, rows_of(node.type.dims, range(len(node.type.dims))), node.type.size)
