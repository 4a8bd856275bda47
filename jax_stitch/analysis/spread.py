"""Spreading a split from one value over all that it reaches."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from math import prod

from jax_stitch.analysis.binding import Binding, admits, covers, inner_sizes, to_operand, to_result
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.model import Graph

MAX_SINGLE_ROW = 1 << 17
"""Elements of the largest value that a single block may work through where there is but one row."""


def bind(graph: Graph, seed: int, binding: Binding, rows: int, candidates: Collection[int]) -> dict[int, Binding]:
    """Spreads a split from ``seed`` over operands and users while it covers all rows.

    Values outside ``candidates`` (arguments, results of library calls) are bound too, since kernels that read the same
    one may share the read, but the split does not pass through the operation that made them.
    """
    if seed in candidates and not admits(graph, graph[seed], binding):
        return {}
    bound: dict[int, Binding] = {seed: binding}
    queue = deque([seed])
    while queue:
        i = queue.popleft()
        node, here = graph[i], bound[i]
        neighbours: list[tuple[int, Binding | None]] = []
        if i in candidates:
            neighbours += [(operand, to_operand(graph, node, k, here)) for k, operand in enumerate(node.operands)]
        for user in graph.users[i]:
            if user in candidates:
                places = [k for k, operand in enumerate(graph[user].operands) if operand == i]
                neighbours.append((user, to_result(graph, graph[user], places[0], here)))
        for other, b in neighbours:
            if b is None or other in bound or is_rematerializable(graph[other]) or not covers(b, rows):
                continue
            if other in candidates and not admits(graph, graph[other], b):
                continue
            if rows > 1 or places_inside(b) <= MAX_SINGLE_ROW:
                bound[other] = b
                queue.append(other)
    return bound


def places_inside(binding: Binding) -> int:
    """Elements per row."""
    return prod(inner_sizes(binding))
