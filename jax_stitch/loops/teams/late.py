"""What a team of one thread computes in a sweep of its own since it waits for functions: functions of functions.

A processor works on several vectors at a time, as far ahead as it looks: a few hundred instructions. Where one function
waits for another (the last ``tanh`` of an LSTM for its gates), a vector's instructions are more than that, and most of
them wait. In two sweeps, with what the second needs of the first cached between them, vectors overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jax_stitch.analysis.maps import MOVES
from jax_stitch.analysis.support import is_computed
from jax_stitch.graph.model import Graph, Node
from jax_stitch.ir.operations import ELEMENTWISE, HEAVY
from jax_stitch.loops.teams.caching import LONG, costs

FUNCTIONS = HEAVY - {"divide", "remainder", "rsqrt", "sqrt"}
"""What takes dozens of instructions; the others are one each."""

LEAST_PLACES, LEAST_FUNCTIONS = 128, 3
"""Places, eight of the widest vectors: of fewer none follow that could overlap. Functions of all that is computed
together: where there are two, the next vectors are near enough.
"""


def late(
    body: Graph, alive: Collection[int], roots: Sequence[int], cached: Collection[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the values that are cached for it besides those ``cached``, and those that are computed apart: of what is
    cached and of ``roots``, what waits for functions of functions.
    """
    levels = _levels(body, alive, cached)
    waiting = {i for i, level in levels.items() if level > 1}
    written = frozenset(i for i in waiting if i in cached or i in roots)
    functions = sum(body[i].op in FUNCTIONS for i in levels)
    if not written or functions < LEAST_FUNCTIONS:
        return frozenset(), frozenset()
    cost = costs(body, alive, cached)
    needed = {o for i in waiting for o in body[i].operands if o not in waiting and cost.get(o, 0) >= LONG}
    if any(body[o].op in MOVES for o in needed):  # Of something else's places: it would be cached in another order.
        return frozenset(), frozenset()
    return frozenset(needed - set(cached)), written


def _levels(body: Graph, alive: Collection[int], cached: Collection[int]) -> Mapping[int, int]:
    """Return how many functions wait for each other in each elementwise value of many places, itself included."""
    levels: dict[int, int] = {}
    for i in sorted(alive):
        node = body[i]
        if not is_computed(node.type) or node.tensor.dtype not in ("f32", "f64"):
            continue
        if node.op in MOVES:
            (source, *_) = node.operands
            if source in levels and source not in cached:
                levels[i] = levels[source]
        elif node.op in ELEMENTWISE and node.tensor.size >= LEAST_PLACES:
            levels[i] = max((_level(levels, node, body[o]) for o in node.operands), default=0)
            levels[i] += node.op in FUNCTIONS
    return levels


def _level(levels: Mapping[int, int], node: Node, operand: Node) -> int:
    return levels.get(operand.id, 0) if operand.type == node.type else 0
