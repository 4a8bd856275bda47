"""Operations on one element at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from hlo_parser.dtypes import ELEMENT_TYPES

from ...graph.model import Node
from ..operation import operation
from .registry import Called, Value, check, rule

_UNARY: dict[str, Callable[[Any], Any]] = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atanh": lax.atanh,
    "cbrt": lax.cbrt,
    "ceil": lax.ceil,
    "cosh": lax.cosh,
    "cosine": lax.cos,
    "count-leading-zeros": lax.clz,
    "erf": lax.erf,
    "exponential": lax.exp,
    "exponential-minus-one": lax.expm1,
    "floor": lax.floor,
    "imag": lax.imag,
    "is-finite": lax.is_finite,
    "log": lax.log,
    "log-plus-one": lax.log1p,
    "logistic": lax.logistic,
    "negate": lax.neg,
    "not": lax.bitwise_not,
    "popcnt": lax.population_count,
    "real": lax.real,
    "round-nearest-afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round-nearest-even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "rsqrt": lax.rsqrt,
    "sign": lax.sign,
    "sine": lax.sin,
    "sinh": lax.sinh,
    "sqrt": lax.sqrt,
    "tan": lax.tan,
    "tanh": lax.tanh,
}

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lax.add,
    "and": lax.bitwise_and,
    "atan2": lax.atan2,
    "complex": lax.complex,
    "divide": lax.div,
    "maximum": lax.max,
    "minimum": lax.min,
    "multiply": lax.mul,
    "or": lax.bitwise_or,
    "remainder": lax.rem,
    "shift-left": lax.shift_left,
    "shift-right-arithmetic": lax.shift_right_arithmetic,
    "shift-right-logical": lax.shift_right_logical,
    "subtract": lax.sub,
    "xor": lax.bitwise_xor,
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


@rule(*_UNARY)
def _unary(node: Node, operands: Sequence[Value], _: Called) -> Value:
    if node.op in ("real", "imag") and not _is_complex(operands[0]):
        return operands[0] if node.op == "real" else lax.full_like(operands[0], 0)
    return _UNARY[node.op](operands[0])


@rule(*_BINARY)
def _binary(node: Node, operands: Sequence[Value], _: Called) -> Value:
    op = _ON_PRED.get(node.op, node.op) if node.tensor.dtype == "pred" else node.op
    return _BINARY[op](*operands)


@rule("abs")
def _abs(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return operands[0] if node.tensor.dtype[0] == "u" else lax.abs(operands[0])


@rule("power")
def _power(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return operation("stablehlo.power", operands, [node.tensor])[0]  # lax.pow takes no two integers


@rule("mulhi")
def _mulhi(_: Node, operands: Sequence[Value], __: Called) -> Value:
    return lax.mulhi(*operands)


@check("mulhi")
def _check_mulhi(_: Node) -> str | None:
    return None if hasattr(lax, "mulhi") else "this version of JAX has no operation for it"


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
