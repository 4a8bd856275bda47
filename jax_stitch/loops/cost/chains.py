"""The latency of a loop's iteration: of the operations that one step's values go through to the next's.

A processor finishes one operation before it begins another that needs it, however many it could begin at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE, HEAVY
from jax_stitch.loops.teams.sharing import FUNCTION_CLOCKS

FLOAT_CLOCKS, INTEGER_CLOCKS, MULTIPLY_CLOCKS, LOAD_CLOCKS, DIVISION_CLOCKS = 3.0, 1.0, 4.0, 5.0, 13.0
"""Until the result of an operation is there: after tables of Zen's instructions. An integer is divided by a constant by
multiplying it; a load waits for its index."""

FUSED_CLOCKS = 1.0
"""The further latency of a sum with a product in it."""

SINGLE_FUNCTION_CLOCKS = 60.0
"""The same of a function of one float in our kernels. Measured: ``exp`` 35, ``log``, ``sin`` and ``tanh`` 60 to 65."""

XLA_FUNCTION_CLOCKS, XLA_FEW_FUNCTION_CLOCKS, FEW = 70.0, 45.0, 4
"""The same of XLA's functions, and of those of at most so few elements, which it computes without a loop. Measured:
``exp``, ``log``, ``sin``, ``tanh`` and ``logistic`` of 8 elements 50 to 115, of one 40 to 65.
"""

SIMPLIFIED = 0.5
"""XLA's integer operations over those that are written: its compiler leaves out half of what remainders and indices
take with signs that they never have. Measured."""

DIVISIONS = frozenset({"divide", "remainder", "sqrt", "rsqrt"})

Clocks = Callable[[Graph, Node], float]


def is_division(graph: Graph, node: Node) -> bool:
    """Return whether an operation divides, or takes a root, by more than multiplying."""
    by_constant = not _is_float(node) and graph[node.operands[-1]].op == "constant"
    return node.op in DIVISIONS and not by_constant


def own_clocks(graph: Graph, node: Node) -> float:
    """Return the clocks until our kernels have an operation's result."""
    if node.op not in ELEMENTWISE or not isinstance(node.type, TensorType):
        return 0.0
    if node.op in DIVISIONS:
        return DIVISION_CLOCKS if is_division(graph, node) else MULTIPLY_CLOCKS
    if node.op in HEAVY:
        return SINGLE_FUNCTION_CLOCKS if node.tensor.size == 1 else FUNCTION_CLOCKS
    return FLOAT_CLOCKS if _is_float(node) else INTEGER_CLOCKS


def xla_clocks(graph: Graph, node: Node) -> float:
    """Return the same of XLA's, which makes one of a product and a sum; divisions are counted apart."""
    if node.op in DIVISIONS and is_division(graph, node):
        return 0.0
    if node.op in HEAVY - DIVISIONS:
        return XLA_FEW_FUNCTION_CLOCKS if node.tensor.size <= FEW else XLA_FUNCTION_CLOCKS
    users = graph.users[node.id]
    is_fused = node.op == "multiply" and _is_float(node) and any(graph[u].op in ("add", "subtract") for u in users)
    return FUSED_CLOCKS if is_fused else own_clocks(graph, node) * (1.0 if _is_float(node) else SIMPLIFIED)


def chain(graph: Graph, carried: Iterable[tuple[int, int]], clocks: Clocks) -> float:
    """Return the clocks of the longest chain of operations from a carried value to the one that follows it."""
    longest = 0.0
    for parameter, following in carried:
        reached = {parameter: 0.0}
        for node in graph.nodes[parameter + 1 : following + 1]:
            loads = LOAD_CLOCKS if node.op in ("dynamic-slice", "gather") else 0.0
            ends = [reached[o] + loads * (k > 0) for k, o in enumerate(node.operands) if o in reached]
            if ends:
                reached[node.id] = max(ends) + clocks(graph, node)
        longest = max(longest, reached.get(following, 0.0))
    return longest


def _is_float(node: Node) -> bool:
    return isinstance(node.type, TensorType) and "f" in node.type.dtype
