"""Reductions along columns on a CPU: each core has some of the columns, so that it reads short runs of every row.

A memory reads long runs at full speed only: on two cores of an AMD EPYC, runs of 64 bytes to 8 kB, a row apart, came at
a fifth to two fifths of the rate at which each core went through whole rows. Where a kernel goes over its columns
several times, it reads them as slowly each time. What adds up whole rows in each block, and joins the blocks' sums in
a further kernel, reads in long runs; as rows are short then beside columns, there is little to join.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from jax_stitch.analysis.binding import Binding, inner_sizes
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, Node

LONG_COLUMN = 256
"""Elements of a column from which what whole rows add up to is little."""

SMALL_BYTES = 1 << 20
"""Of an array that the cores' own caches hold, of which they read any run as fast."""


def column_bytes(graph: Graph, pattern: Pattern, device: Device) -> int:
    """Return bytes that memory could move besides in the time that a pattern's cores take for short runs: as many as
    they read and write so, in all passes, and what passes after the first one read again.
    """
    if not _is_slow_along_columns(device):
        return 0
    arrays = {i for i in (*pattern.inputs, *pattern.outputs) if node_bytes(graph[i]) >= SMALL_BYTES}
    slow = {i for i in arrays if _in_columns(pattern, i, device)}
    once = sum(node_bytes(graph[i]) for i in slow)
    again = (_passes(graph, pattern) - 1) * sum(node_bytes(graph[i]) for i in slow.intersection(pattern.inputs))
    return once + 2 * again


def column_bytes_of_xla(graph: Graph, members: Collection[int], device: Device) -> int:
    """Return the same of XLA's kernels, for reductions of columns among ``members``."""
    if not _is_slow_along_columns(device):
        return 0
    slow = [node_bytes(graph[graph[i].operands[0]]) for i in members if _reduces_columns(graph, graph[i], device)]
    return sum(size for size in slow if size >= SMALL_BYTES)


def _is_slow_along_columns(device: Device) -> bool:
    return device.target.lanes_are_vectors and device.multiprocessors > 1


def _reduces_columns(graph: Graph, node: Node, device: Device) -> bool:
    if node.op != "reduce" or not node.attributes["dimensions"]:
        return False
    dims, reduced = graph[node.operands[0]].tensor.dims, node.attributes["dimensions"]
    kept = prod(dims[d] for d in range(len(dims)) if d not in reduced)
    run = prod(dims[max(reduced) + 1 :])
    return run > 1 and prod(dims) > LONG_COLUMN * kept and kept // run < device.multiprocessors


def _in_columns(pattern: Pattern, i: int, device: Device) -> bool:
    """Return whether neighbours in memory are rows of the pattern, which is all that tells its blocks apart."""
    binding = pattern.bindings.get(i)
    if binding is None or prod(inner_sizes(binding)) <= LONG_COLUMN:
        return False
    run = _neighbouring_rows(binding)
    return run > 1 and pattern.rows // run < device.multiprocessors


def _neighbouring_rows(binding: Binding) -> int:
    run = 1
    for factor in reversed([f for dim in binding for f in dim]):
        if factor.stride is None:
            break
        run *= factor.size
    return run


def _passes(graph: Graph, pattern: Pattern) -> int:
    """Return how often the places of a row are gone through: each reduction is after those that it needs."""
    after: dict[int, int] = {}
    most = 1
    for i in sorted(pattern.nodes):
        node = graph[i]
        before = max((after.get(o, 0) for o in node.operands), default=0)
        after[i] = before + (node.op == "reduce")
        is_long = i in pattern.bindings and prod(inner_sizes(pattern.bindings[i])) > 1
        most = max(most, after[i], before + 1 if is_long else 0)
    return most
