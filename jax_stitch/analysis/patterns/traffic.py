"""What a pattern reads and writes, and what follows from that alone."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.graph.model import Graph, TensorType


def moved_bytes(graph: Graph, pattern: Pattern) -> int:
    """Return the bytes that a pattern reads and writes in memory."""
    return sum(node_bytes(graph[i]) for i in (*pattern.inputs, *pattern.outputs))


def longest_row(graph: Graph, pattern: Pattern) -> int:
    """Return the elements of the largest value of a pattern that each row has."""
    types = [graph[i].type for i in (*pattern.nodes, *pattern.inputs)]
    return max(1, max((t.size for t in types if isinstance(t, TensorType)), default=1) // pattern.rows)


def may_have_clusters(graph: Graph, kernel: Sequence[Pattern]) -> bool:
    """Return whether the blocks of a kernel may be in clusters, where the device has them.

    How many are on it at a time it alone knows, so that none may wait for another: all blocks do the same, and what
    follows in further phases is so little that the block which arrives last does it.
    """
    alike = len({p.phase for p in kernel}) == len(kernel)
    loops = any(p.loop is not None for p in kernel)
    return alike and not loops and sum(moved_bytes(graph, p) for p in kernel[1:]) <= MOST_LAST_BLOCK_BYTES


BYTES_PER_THREAD = 256 << 10
"""The least work of a kernel on a CPU, or of a phase of it, for which its launcher takes another thread
(``kBytesPerThread`` of ``backend/launch/handler.cc``)."""

MOST_LAST_BLOCK_BYTES = 64 << 10
"""What one block moves in less time than all blocks take to wait for each other."""

NEIGHBOURS = 128
"""Rows that are neighbours in memory: fewer are too short a piece for a CPU to fetch ahead."""
