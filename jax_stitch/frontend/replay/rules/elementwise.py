"""Operations on one element at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.graph.model import Node
from jax_stitch.ir.operations import TABLE

from ..operation import operation
from .registry import Called, Value, rule

_LAX: dict[str, Callable[..., Any]] = {
    opcode: getattr(lax, row.lax) for opcode, row in TABLE.items() if row.lax is not None
} | {
    "round-nearest-afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round-nearest-even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
}

_ON_PRED = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}
"""HLO calculates with pred as with one-bit numbers; jax.lax does not."""

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": lax.eq,
    "NE": lax.ne,
    "LT": lax.lt,
    "LE": lax.le,
    "GT": lax.gt,
    "GE": lax.ge,
}


@rule(*_LAX)
def _counterpart(node: Node, operands: Sequence[Value], _: Called) -> Value:
    if node.op in ("real", "imag") and not _is_complex(operands[0]):
        return operands[0] if node.op == "real" else lax.full_like(operands[0], 0)
    op = _ON_PRED.get(node.op, node.op) if node.tensor.dtype == "pred" else node.op
    return _LAX[op](*operands)


@rule("abs")
def _abs(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return operands[0] if node.tensor.dtype[0] == "u" else lax.abs(operands[0])


@rule("power")
def _power(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return operation("stablehlo.power", operands, [node.tensor])[0]  # lax.pow takes no two integers


@rule(*(["mulhi"] if hasattr(lax, "mulhi") else []))  # Not every version of JAX has it.
def _mulhi(_: Node, operands: Sequence[Value], __: Called) -> Value:
    return lax.mulhi(*operands)


@rule("log2")
def _log2(_: Node, operands: Sequence[Value], __: Called) -> Value:
    x = operands[0]
    return lax.mul(lax.log(x), lax.full_like(x, 1 / math.log(2)))  # as lax.log2, which jax 0.12 has first


@rule("compare")
def _compare(node: Node, operands: Sequence[Value], _: Called) -> Value:
    direction = node.attributes["direction"]
    if node.attributes.get("type") != "TOTALORDER":
        return _COMPARE[direction](*operands)
    attributes = {
        "comparison_direction": f"#stablehlo<comparison_direction {direction}>",
        "compare_type": "#stablehlo<comparison_type TOTALORDER>",
    }
    return operation("stablehlo.compare", operands, [node.tensor], attributes)[0]


@rule("select")
def _select(_: Node, operands: Sequence[Value], __: Called) -> Value:
    return lax.select(*operands)


@rule("clamp")
def _clamp(_: Node, operands: Sequence[Value], __: Called) -> Value:
    return lax.clamp(*operands)


@rule("convert")
def _convert(node: Node, operands: Sequence[Value], _: Called) -> Value:
    value, dtype = operands[0], node.tensor.dtype
    if _is_complex(value) and dtype[0] != "c":
        value = lax.real(value)
    return lax.convert_element_type(value, ELEMENT_TYPES[dtype].numpy)


@rule("bitcast-convert")
def _bitcast_convert(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return operation("stablehlo.bitcast_convert", operands, [node.tensor])[0]  # lax's refuses pred


@rule("reduce-precision")
def _reduce_precision(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return lax.reduce_precision(operands[0], node.attributes["exponent_bits"], node.attributes["mantissa_bits"])


def _is_complex(value: Value) -> bool:
    return value.dtype.kind == "c"
