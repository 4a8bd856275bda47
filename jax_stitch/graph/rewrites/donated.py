"""Small donated values that are updated, such as an optimizer's count of its steps.

What needs the new value reads it, and does not compute it once more from the old one: a kernel that still reads the
old one cannot run after its memory is overwritten, so XLA would copy it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..builder import Builder, copied, moved
from ..model import Graph, Node, TensorType
from ..opcodes import ELEMENTWISE

SETTLED = "opt-barrier"
"""The operation that keeps a value from being computed again: it is its operand."""

_SMALL = 64
"""Elements."""
_SHORT = 16
"""Operations that make the new value of the old one."""


def settled(graph: Graph, homes: Mapping[int, int]) -> Graph:
    """Return a graph in which nothing computes small results that take the memory of donated parameters again.

    ``homes`` are those parameters, by number, each with its result.
    """
    updates = {graph.results[r] for p, r in homes.items() if _is_update(graph, graph.parameters[p], graph.results[r])}
    if not updates:
        return graph

    def instead(builder: Builder, node: Node, ids: Mapping[int, int]) -> int | None:
        if node.id not in updates:
            return None
        update = builder.add(moved(node, -1, tuple(ids[o] for o in node.operands)))
        return builder.derive(node, SETTLED, node.type, (update,))

    return copied(graph, instead)


def _is_update(graph: Graph, old: int, new: int) -> bool:
    """Return whether a result that others read too is small, and made by few operations of the old value alone."""
    if not _is_small(graph[new]) or not graph.users[new] or graph[new].op not in ELEMENTWISE:
        return False
    waiting, seen = [new], {new}
    while waiting and len(seen) <= _SHORT:
        node = graph[waiting.pop()]
        if node.id == old or node.op == "constant":
            continue
        if node.op not in ELEMENTWISE | {"broadcast"} or not _is_small(node):
            return False
        waiting += [o for o in node.operands if o not in seen]
        seen.update(node.operands)
    return not waiting and old in seen


def _is_small(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.tensor.size <= _SMALL
