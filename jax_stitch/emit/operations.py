"""HLO operations on one element as expressions of the kernel language."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.graph.model import Graph, Node
from jax_stitch.kernel.expressions import Attributes, Op, Value, type_of
from jax_stitch.kernel.literals import HALF, computed, literal

FLOATS = frozenset({"f32", "f64", *HALF})


def operation(node: Node, operands: Sequence[Value]) -> Op:
    """The value of an elementwise ``node`` from one element of each operand."""
    return Op(node.op, node.tensor.dtype, tuple(operands), _attributes(node))


def operation_in(function: Graph, node: Node, operands: Sequence[Value]) -> Op:
    """The same of a node of a small function, whose values are as they are computed: bits are those of the types that
    they have in the function."""
    if node.op == "bitcast-convert":
        wanted = [function[o].tensor.dtype for o in node.operands]
        operands = [v if type_of(v) == t else rounded(t, v) for v, t in zip(operands, wanted, strict=True)]
    return operation(node, operands)


def _attributes(node: Node) -> Attributes:
    """What an operation's value depends on besides its operands."""
    if node.op == "compare":
        total = str(node.attributes.get("type", "")) == "TOTALORDER"
        kind: Attributes = (("type", "TOTALORDER"),) if total else ()
        return (("direction", str(node.attributes["direction"])), *kind)
    if node.op == "reduce-precision":
        return tuple((a, int(node.attributes[a])) for a in ("exponent_bits", "mantissa_bits"))
    return ()


def rounded(dtype: str, value: Value) -> Value:
    """Sub-word floats carry the rounding of their own type."""
    return Op("convert", dtype, (value,)) if dtype in HALF else value


def unrounded(op: Op) -> Op:
    """The same in float where it is one of sub-word floats, and not of their bits."""
    return op if op.opcode == "bitcast-convert" else Op(op.opcode, computed(op.dtype), op.operands, op.attributes)


def values_of(function: Graph, parameters: Sequence[Value]) -> list[Value | None]:
    """The constants among a small function's nodes, and its parameters; None for what is computed."""
    values: list[Value | None] = [None] * len(function.nodes)
    for p, value in zip(function.parameters, parameters, strict=True):
        values[p] = value
    for node in function.nodes:
        if node.op == "constant":
            assert node.literal is not None
            values[node.id] = literal(node.literal, node.tensor.dtype)
    return values
