"""Scans inside a kernel: the lanes that share a row go along it in order, so that a scan's value at a place is there as
soon as its operand's is.

Nothing but the value of the last place is kept, so whoever reads a scan reads it at the place the lanes are at, and no
pass over a row can go both ways.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from jax_stitch.graph.model import Graph, Node
from jax_stitch.graph.scans import scan_of, scans

XLA_KERNELS = 3
"""Kernels in which XLA does a long scan, at least: windows of a few elements, the scan of their results, the sums."""

XLA_SHORT = 16
"""Places that XLA scans in one kernel, each from the start."""


def directions(graph: Graph, nodes: Collection[int]) -> dict[int, frozenset[bool]]:
    """Return, for each of ``nodes`` (results of reductions have none), the ways in which the lanes have to go to
    compute it: backward or not.
    """
    by_node: dict[int, frozenset[bool]] = {}
    for i in sorted(nodes):
        node = graph[i]
        if node.op in ("reduce", "sort", "get-tuple-element"):
            by_node[i] = frozenset()
            continue
        by_node[i] = of_operands(node, by_node)
        scan = scan_of(graph, node)
        if scan is not None:
            by_node[i] |= {scan.backward}
    return by_node


def of_operands(node: Node, known: dict[int, frozenset[bool]]) -> frozenset[bool]:
    """Return the directions of all operands together."""
    return frozenset(way for o in node.operands for way in known.get(o, ()))


def misplaced(graph: Graph, nodes: Collection[int], by_place: Iterable[int]) -> set[int]:
    """Return nodes that no pass over a row could compute: those of both directions, and reductions and sorts of what is
    scanned whose results are kept ``by_place``: those across rows, and those that leave a row several places.
    """
    if scans(graph).isdisjoint(nodes):
        return set()
    by_node = directions(graph, nodes)
    bad = {i for i, ways in by_node.items() if len(ways) > 1}
    bad |= {i for i in nodes if graph[i].op == "reduce" and len(of_operands(graph[i], by_node)) > 1}
    return bad | {i for i in by_place if i in by_node and of_operands(graph[i], by_node)}


def further_kernels(graph: Graph, nodes: Iterable[int]) -> int:
    """Return XLA's kernels for the scans among ``nodes`` beyond the one each stands in."""
    further = 0
    for i in scans(graph).intersection(nodes):
        scan = scan_of(graph, graph[i])
        if scan is not None and graph[i].tensor.dims[scan.dimension] > XLA_SHORT:
            further += XLA_KERNELS - 1
    return further
