"""One HLO operation on one element as a C++ expression against ``backend/runtime/scalar.h``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.ir.operations import TABLE
from jax_stitch.kernel.expressions import EXACT, Op, type_of
from jax_stitch.kernel.literals import HALF

STORAGE = {
    "pred": "bool",
    "s8": "int8_t",
    "s16": "int16_t",
    "s32": "int32_t",
    "s64": "int64_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "bf16": "st::bf16",
    "f16": "st::f16",
    "f32": "float",
    "f64": "double",
    "c64": "st::complex64",
    "c128": "st::complex128",
}
"""C++ types in buffers, by HLO element type."""


def computed_type(dtype: str) -> str:
    """Return the C++ type a value has in registers: sub-word floats are computed in float."""
    return "float" if dtype in HALF else STORAGE[dtype]


def computed_bytes(dtype: str) -> int:
    """Return the size of that type."""
    return 4 if dtype in HALF else ELEMENT_TYPES[dtype].bits // 8 or 1


INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}

COMPARE = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}

_EXACT_COMPARE = {
    "EQ": "st::exact_equal({0}, {1})",
    "NE": "(!st::exact_equal({0}, {1}))",
    "LT": "st::exact_less({0}, {1})",
    "LE": "st::exact_less_equal({0}, {1})",
    "GT": "st::exact_less({1}, {0})",
    "GE": "st::exact_less_equal({1}, {0})",
}
"""Comparisons of what a bf16 may hold."""


def expression(op: Op, operands: Sequence[str]) -> str:
    """Return the value of ``op`` given its operands' text, in the computed type of its own element type."""
    dtype, dtypes = op.dtype, [type_of(o) for o in op.operands]
    attributes = dict(op.attributes)
    match op.opcode:
        case "convert":
            return _convert(dtype, operands[0], dtypes[0])
        case "bitcast-convert":
            return _bitcast(dtype, operands[0], dtypes[0])
        case "compare":
            a, b = operands
            if "type" in attributes and dtypes[0] in ("f32", "f64", *HALF):
                a, b = f"st::total_order({a})", f"st::total_order({b})"
            elif EXACT in attributes:
                return _EXACT_COMPARE[str(attributes["direction"])].format(a, b)
            return f"({a} {COMPARE[str(attributes['direction'])]} {b})"
        case "maximum" | "minimum" | "clamp" if EXACT in attributes:
            return f"st::exact_{op.opcode}({', '.join(operands)})"
        case "select":
            return f"({operands[0]} ? {operands[1]} : {operands[2]})"
        case "clamp":
            return f"st::clamp({', '.join(operands)})"
        case "reduce-precision":
            bits = f"{attributes['exponent_bits']}, {attributes['mantissa_bits']}"
            return load(dtype, f"st::reduce_precision<{bits}>({store(dtype, operands[0])})")
    if op.opcode in INFIX and dtype in ("f32", "f64", *HALF):
        return rounded(dtype, f"({operands[0]} {INFIX[op.opcode]} {operands[1]})")
    if op.opcode == "negate" and dtype in ("f32", "f64", *HALF):
        return f"(-{operands[0]})"
    name = TABLE[op.opcode].cpp
    assert name is not None, f"{op.opcode} has no C++ function in the table, and no text of its own here"
    if op.opcode == "is-finite":
        return f"st::is_finite({operands[0]})"
    return rounded(dtype, f"st::{name}({', '.join(operands)})")


def rounded(dtype: str, value: str) -> str:
    """Return the text of a value rounded to its type: sub-word floats carry the rounding of their own type."""
    return f"st::round_to<{STORAGE[dtype]}>({value})" if dtype in HALF else value


def _convert(dtype: str, value: str, source: str) -> str:
    if dtype == source or (dtype == "f32" and source in HALF):
        return value
    if dtype in HALF:
        if source == "f32" or source in HALF:
            return rounded(dtype, value)
        return f"st::load(st::convert<{STORAGE[dtype]}>({value}))"
    return f"st::convert<{STORAGE[dtype]}>({value})"


def _bitcast(dtype: str, value: str, source: str) -> str:
    if source in HALF:
        value = f"st::store<{STORAGE[source]}>({value})"
    cast = f"st::bitcast<{STORAGE[dtype]}>({value})"
    return f"st::load({cast})" if dtype in HALF else cast


def load(dtype: str, place: str) -> str:
    """Return a buffer element as a value."""
    return f"st::load({place})" if dtype in HALF or dtype == "pred" else place


def store(dtype: str, value: str) -> str:
    """Return a value as a buffer element."""
    return f"st::store<{STORAGE[dtype]}>({value})" if dtype in HALF else value


def literal(value: np.generic | np.ndarray, dtype: str) -> str:
    """Return a constant of the computed type of ``dtype``, exact to the bit."""
    scalar = np.asarray(value)
    if dtype == "pred":
        return "true" if bool(scalar) else "false"
    if dtype in ("f32", "f64", *HALF):
        wide = float(scalar)
        single = dtype != "f64"
        if np.isnan(wide):
            kind = np.uint32 if single else np.uint64
            bits = int(scalar.astype(np.float32 if single else np.float64).view(kind))
            return f"st::bits_float(0x{bits:08x}u)" if single else f"st::bits_double(0x{bits:016x}ull)"
        if np.isinf(wide):
            bits_text = "st::bits_float(0x7f800000u)" if single else "st::bits_double(0x7ff0000000000000ull)"
            return bits_text if wide > 0 else f"(-{bits_text})"
        text = repr(float(np.float32(wide))) if single else repr(wide)
        if single:
            short = str(np.float32(wide))
            text = short if np.float32(short) == np.float32(wide) else text
        text = text if any(c in text for c in ".e") else text + ".0"
        text += "f" if single else ""
        return f"({text})" if text.startswith("-") else text
    whole = int(scalar)
    bits = int(dtype[1:])
    if dtype[0] == "u":
        return f"{STORAGE[dtype]}({whole}{'ull' if bits == 64 else 'u'})"
    if whole == -(1 << (bits - 1)):
        return f"{STORAGE[dtype]}({whole + 1}{'ll' if bits == 64 else ''} - 1)"
    return f"{STORAGE[dtype]}({whole}{'ll' if bits == 64 else ''})"
