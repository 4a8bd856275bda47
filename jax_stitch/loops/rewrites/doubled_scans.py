"""Scans written out in steps that double: cumulative sums, maxima and the like in the bodies of loops.

After a step each place holds what the ``2 k`` places up to it combine to, where it held that of ``k`` before: the
combination of its own value with that ``k`` places earlier (Hillis and Steele, Data Parallel Algorithms, 1986). A scan
of ``n`` places takes ``log2 n`` steps, each of slices and one concatenation, which any kernel can hold.
"""

from __future__ import annotations

from collections.abc import Mapping

from jax_stitch.graph.builder import Builder, copied
from jax_stitch.graph.combiners import leaves_others
from jax_stitch.graph.maps import apply_elementwise, can_apply
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.scans import Scan, scan_of

LONGEST = 4096
"""The most places of a scan that is written out."""

_TYPES = frozenset({"f32", "f64", "s32", "s64", "u32", "u64"})


def with_doubled_scans(graph: Graph) -> Graph:
    """Return the graph with each scan of at most ``LONGEST`` places written out."""
    found = {n.id: scan for n in graph.nodes if (scan := _scan(graph, n)) is not None}
    return copied(graph, lambda builder, node, ids: _instead(builder, node, ids, found)) if found else graph


def _scan(graph: Graph, node: Node) -> Scan | None:
    """Return the scan that a node is, if it is to be written out: from a value that changes nothing."""
    scan = scan_of(graph, node)
    if scan is None or node.tensor.dtype not in _TYPES or node.tensor.dims[scan.dimension] > LONGEST:
        return None
    combiner = node.graphs["to_apply"]
    return scan if can_apply(combiner) and leaves_others(combiner, graph[node.operands[1]]) else None


def _instead(builder: Builder, node: Node, ids: Mapping[int, int], found: Mapping[int, Scan]) -> int | None:
    scan = found.get(node.id)
    if scan is None:
        return None
    value, places, distance = ids[node.operands[0]], node.tensor.dims[scan.dimension], 1
    while distance < places:
        value = _step(builder, node, scan, value, distance)
        distance *= 2
    return value


def _step(builder: Builder, node: Node, scan: Scan, value: int, distance: int) -> int:
    """Add a step: each place but the first ``distance`` in the scan's direction is combined with the one so far before
    it.
    """
    d, dims = scan.dimension, node.tensor.dims
    places = dims[d]

    def part(start: int, stop: int) -> int:
        sizes = tuple(stop - start if k == d else n for k, n in enumerate(dims))
        ranges = tuple((start, stop, 1) if k == d else (0, n, 1) for k, n in enumerate(dims))
        return builder.derive(node, "slice", TensorType(node.tensor.dtype, sizes), [value], {"slice": ranges})

    low, high = part(0, places - distance), part(distance, places)
    rest = tuple(places - distance if k == d else n for k, n in enumerate(dims))
    combined = apply_elementwise(builder, node, node.graphs["to_apply"], [low, high], rest)
    pieces = [combined, part(places - distance, places)] if scan.backward else [part(0, distance), combined]
    return builder.derive(node, "concatenate", node.type, pieces, {"dimensions": (d,)})
