"""``reduce-window`` whose windows reach from one end of a dimension to each place: cumulative sums and the like."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from msgspec import Struct

from .model import Graph, Node, TensorType


class Scan(Struct, frozen=True):
    """Results accumulate along ``dimension``: from its first place on, or ``backward`` from its last."""

    dimension: int
    backward: bool


def scan_of(graph: Graph, node: Node) -> Scan | None:
    """Return the scan that a node is, or ``None``: one array, one window as long as its dimension that ends at each
    place.
    """
    if node.op != "reduce-window" or len(node.operands) != 2 or not isinstance(node.type, TensorType):
        return None
    source = graph[node.operands[0]].tensor
    if source != node.type:
        return None
    window = node.attributes["window"].dims
    long = [d for d, w in enumerate(window) if w.size != 1]
    plain = all(w.stride == w.window_dilation == w.base_dilation == 1 and not w.reversed for w in window)
    if not plain or len(long) != 1 or any(w.pad_low or w.pad_high for w in window if w.size == 1):
        return None
    (d,) = long
    size, w = source.dims[d], window[d]
    if w.size != size or (w.pad_low, w.pad_high) not in ((size - 1, 0), (0, size - 1)):
        return None
    return Scan(d, backward=w.pad_low == 0)


def scans(graph: Graph) -> frozenset[int]:
    """Return the nodes of a graph that are scans. Looked for once: who plans asks it of every set of nodes."""
    known = _scans.get(graph)
    if known is None:
        known = _scans[graph] = frozenset(node.id for node in graph.nodes if scan_of(graph, node) is not None)
    return known


_scans: WeakKeyDictionary[Graph, frozenset[int]] = WeakKeyDictionary()
