"""HLO operations on one element as expressions of the kernel language."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jax_stitch.analysis.maps import MOVES
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.kernel.expressions import EXACT, Attributes, Op, Value, type_of
from jax_stitch.kernel.literals import HALF, computed, literal

FLOATS = frozenset({"f32", "f64", *HALF})
_ORDERING = frozenset({"compare", "maximum", "minimum", "clamp"})
_SAME_SIZE = frozenset({*MOVES, "convert", "abs", "negate", "reduce", "partial-reduce", "get-tuple-element"})
"""Operations whose results may be as small as elements of their first operand."""


def operation(graph: Graph, node: Node, operands: Sequence[Value], small: Collection[int] = ()) -> Op:
    """Return the value of an elementwise ``node`` of a graph from one element of each operand. ``small``: parameters
    that ``may_be_small``."""
    return Op(node.op, node.tensor.dtype, tuple(operands), _attributes(graph, node, small))


def operation_in(function: Graph, node: Node, operands: Sequence[Value], small: Collection[int]) -> Op:
    """Return the same of a node of a small function, whose values are as they are computed: bits are those of the types
    that they have in the function."""
    if node.op == "bitcast-convert":
        wanted = [function[o].tensor.dtype for o in node.operands]
        operands = [v if type_of(v) == t else rounded(t, v) for v, t in zip(operands, wanted, strict=True)]
    return operation(function, node, operands, small)


def _attributes(graph: Graph, node: Node, small: Collection[int]) -> Attributes:
    """Return what an operation's value depends on besides its operands."""
    is_exact = node.op in _ORDERING and any(may_be_small(graph, o, small) for o in node.operands)
    exact: Attributes = ((EXACT, 1),) if is_exact else ()
    if node.op == "compare":
        total = str(node.attributes.get("type", "")) == "TOTALORDER"
        kind: Attributes = (("type", "TOTALORDER"),) if total else exact
        return (("direction", str(node.attributes["direction"])), *kind)
    if node.op in _ORDERING:
        return exact
    if node.op == "reduce-precision":
        return tuple((a, int(node.attributes[a])) for a in ("exponent_bits", "mantissa_bits"))
    return ()


def may_be_small(graph: Graph, i: int, small: Collection[int] = ()) -> bool:
    """Return whether a value is a float that is, or once was, a bf16: its subnormals are those of f32, which XLA's
    threads read as zero. Those of other narrow floats are numbers like others in f32."""
    if graph[i].tensor.dtype not in FLOATS:
        return False
    while i not in small:
        node = graph[i]
        if isinstance(node.type, TensorType) and node.type.dtype == "bf16":
            return True
        if node.op not in _SAME_SIZE:
            return False
        i = node.operands[0]
    return True


def rounded(dtype: str, value: Value) -> Value:
    """Return a value in its own type: sub-word floats carry the rounding of their own type."""
    return Op("convert", dtype, (value,)) if dtype in HALF else value


def unrounded(op: Op) -> Op:
    """Return the same in float where it is one of sub-word floats, and not of their bits."""
    return op if op.opcode == "bitcast-convert" else Op(op.opcode, computed(op.dtype), op.operands, op.attributes)


def values_of(function: Graph, parameters: Sequence[Value]) -> list[Value | None]:
    """Return the constants among a small function's nodes, and its parameters; None for what is computed."""
    values: list[Value | None] = [None] * len(function.nodes)
    for p, value in zip(function.parameters, parameters, strict=True):
        values[p] = value
    for node in function.nodes:
        if node.op == "constant":
            assert node.literal is not None
            values[node.id] = literal(node.literal, node.tensor.dtype)
    return values
