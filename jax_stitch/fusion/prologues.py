"""What XLA computes inside the kernel of a library call, on the way to it: a product reads its operands so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from jax_stitch.analysis.support import is_library, is_rematerializable
from jax_stitch.fusion.piece import CALL
from jax_stitch.graph.model import Graph

INSIDE = "part of the kernel of a matrix product"


def prologues(graph: Graph, taken: Collection[int]) -> frozenset[int]:
    """Return the nodes that the products whose kernels have lost any of theirs to ``taken`` read, in those kernels.

    Taken out, one of them has to be written; and if it joins several values, as a concatenation does, all of them have
    to be made in one place.
    """
    within: dict[str, set[int]] = defaultdict(set)
    before: set[int] = set()
    for node in reversed(graph.nodes):
        if not node.kernel or is_rematerializable(node):
            continue
        product = node.op == CALL or is_library(graph, node)
        if product or node.id in before:
            before |= {o for o in node.operands if graph[o].kernel == node.kernel}
        if node.id in before and not product:
            within[node.kernel].add(node.id)
    return frozenset(i for nodes in within.values() if nodes & set(taken) for i in nodes)
