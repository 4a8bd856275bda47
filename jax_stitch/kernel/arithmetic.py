"""What each HLO operation computes on elements, in NumPy: the meaning of ``Op``.

Values of sub-word floats are float32 arrays that hold values of their type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.kernel.expressions import Op, type_of
from jax_stitch.kernel.literals import HALF, numpy_type

Array = np.ndarray


def compute(op: Op, values: Sequence[Array]) -> Array:
    """Return the value of an operation on arrays of the same shape."""
    dtypes = [type_of(o) for o in op.operands]
    attributes = dict(op.attributes)
    with np.errstate(all="ignore"):
        match op.opcode:
            case "convert":
                return convert(values[0], op.dtype)
            case "bitcast-convert":
                return as_held(as_stored(values[0], dtypes[0]).view(ELEMENT_TYPES[op.dtype].numpy), op.dtype)
            case "compare":
                a, b = values
                if "type" in attributes and a.dtype.kind == "f":
                    a, b = _total_order(a), _total_order(b)
                return _COMPARE[str(attributes["direction"])](a, b)
            case "reduce-precision":
                bits = int(attributes["exponent_bits"]), int(attributes["mantissa_bits"])
                return rounded(_reduced(rounded(values[0], op.dtype), *bits), op.dtype)
        kind = values[0].dtype.kind
        table = _OF_FLOATS if kind == "f" and op.opcode in _OF_FLOATS else _OF_INTEGERS
        function = table.get(op.opcode) or _OF_ANY[op.opcode]
        value = np.asarray(function(*values))
        return rounded(value.astype(numpy_type(op.dtype), copy=False), op.dtype)


def as_stored(value: Array, dtype: str) -> Array:
    """Return a value as it is in a buffer."""
    return value.astype(ELEMENT_TYPES[dtype].numpy)


def as_held(value: Array, dtype: str) -> Array:
    """Return an element of a buffer as a value."""
    return value.astype(numpy_type(dtype), copy=False)


def rounded(value: Array, dtype: str) -> Array:
    """Return sub-word floats rounded to their type."""
    return as_held(as_stored(value, dtype), dtype) if dtype in HALF else value


def convert(value: Array, dtype: str) -> Array:
    """Convert as HLO does: floats to integers saturate, and NaN becomes 0."""
    if dtype == "pred":
        return value != 0
    if dtype in HALF:
        if value.dtype == np.float64 and dtype == "f16":
            return value.astype(np.float16).astype(np.float32)
        return rounded(value.astype(np.float32), dtype)
    target = numpy_type(dtype)
    if value.dtype.kind == "f" and target.kind in "iu":
        info = np.iinfo(target)
        inside = np.where(np.isnan(value), 0, np.clip(value, float(info.min), float(info.max)))
        whole = np.where(inside >= float(info.max), 0, inside).astype(target)
        return np.where(inside >= float(info.max), info.max, whole).astype(target)
    return value.astype(target)


def _total_order(value: Array) -> Array:
    bits = value.view(f"i{value.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _reduced(value: Array, exponent: int, mantissa: int) -> Array:
    """Return a float rounded to so many bits, as one of its own type."""
    has_exponent, has_mantissa = {4: (8, 23), 8: (11, 52)}[value.dtype.itemsize]
    bits = value.view(f"u{value.dtype.itemsize}").astype(object)
    sign = 1 << (has_exponent + has_mantissa)
    infinity = ((1 << has_exponent) - 1) << has_mantissa
    a = bits & ~sign & (2 * sign - 1)
    dropped = has_mantissa - mantissa
    if dropped > 0:
        a = (a + ((1 << (dropped - 1)) - 1) + ((a >> dropped) & 1)) & ~((1 << dropped) - 1)
    if exponent < has_exponent:
        bias, own = (1 << (has_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
        most = ((bias + own) << has_mantissa) | ((1 << has_mantissa) - 1)
        a = np.where(a > most, infinity, np.where(a <= (bias - own) << has_mantissa, 0, a))
    a = np.where(np.isnan(value), bits & (2 * sign - 1) & ~sign, a)
    return ((bits & sign) | a).astype(f"u{value.dtype.itemsize}").view(value.dtype)


def _complex(real: Array, imaginary: Array) -> Array:
    """Return complex numbers of these parts: a product with the imaginary unit would make NaN of infinities."""
    made = np.empty(real.shape, np.result_type(real, np.complex64))
    made.real, made.imag = real, imaginary
    return made


_COMPARE: dict[str, Callable[..., Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return np.vectorize(function, otypes=[np.float64])


def _with_sign(choose: Callable[[Array, Array], Array], first: Callable[[Array, Array], Array]) -> Any:
    """Return the greater or lesser; NaN where there is one, and -0 below 0."""

    def function(a: Array, b: Array) -> Array:
        zeros = (a == b) & (a == 0)
        return np.where(zeros, np.where(first(np.signbit(a), np.signbit(b)), -np.abs(a), np.abs(a)), choose(a, b))

    return function


def _integer_power(a: Array, b: Array) -> Array:
    power, base, left = np.ones_like(a), a.copy(), b.copy()
    if a.dtype.kind == "i":
        negative = b < 0
        left = np.where(negative, 0, b)
    while np.any(left > 0):
        power = np.where(left & 1 != 0, power * base, power).astype(a.dtype)
        base, left = (base * base).astype(a.dtype), left >> 1
    if a.dtype.kind == "i":
        odd = np.where(b & 1 != 0, -1, 1)
        power = np.where(negative, np.where(a == 1, 1, np.where(a == -1, odd, 0)), power).astype(a.dtype)
    return power


def _divide(a: Array, b: Array) -> Array:
    """Divide towards zero; by zero all bits are set."""
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    quotient = a // safe
    if a.dtype.kind == "i":
        least = (a == np.iinfo(a.dtype).min) & (b == -1)
        quotient = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0)))  # NumPy divides towards minus infinity.
        quotient = np.where(least, a, quotient)
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    safe = np.where((b == 0) | (b == -1 if a.dtype.kind == "i" else False), 1, b).astype(a.dtype)
    rest = np.fmod(a, safe)
    return np.where(b == 0, a, rest).astype(a.dtype)


def _shift(function: Callable[..., Array], arithmetic: bool = False) -> Callable[[Array, Array], Array]:
    """Shift; by the width or more the result is 0, or all bits the sign."""

    def shift(x: Array, by: Array) -> Array:
        bits = 8 * x.dtype.itemsize
        amount = by.view(f"u{by.dtype.itemsize}") if by.dtype.kind == "i" else by
        held = x.view(f"{'i' if arithmetic else 'u'}{x.dtype.itemsize}")
        moved = function(held, np.minimum(amount, bits - 1).astype(held.dtype))
        out = held >> np.array(bits - 1, held.dtype) if arithmetic else np.zeros_like(held)
        return np.where(amount < bits, moved, out).astype(held.dtype).view(x.dtype)

    return shift


def _count(of: Callable[[int, int], int]) -> Callable[[Array], Array]:
    def count(x: Array) -> Array:
        bits = 8 * x.dtype.itemsize
        unsigned = x.view(f"u{x.dtype.itemsize}")
        return np.vectorize(lambda v: of(int(v), bits), otypes=[x.dtype])(unsigned)

    return count


def _mulhi(a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    return np.vectorize(lambda x, y: (int(x) * int(y)) >> bits, otypes=[a.dtype])(a, b)


def _away(x: Array) -> Array:
    whole = np.trunc(x)
    return np.copysign(whole + (np.abs(x - whole) >= 0.5) * np.sign(x), x)


_maximum = _with_sign(np.maximum, np.logical_and)
_minimum = _with_sign(np.minimum, np.logical_or)

_OF_FLOATS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "clamp": lambda low, x, high: _minimum(_maximum(x, low), high),
    "cosh": np.cosh,
    "cosine": np.cos,
    "divide": np.divide,
    "erf": _elementwise(math.erf),
    "exp2": np.exp2,
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "floor": np.floor,
    "is-finite": np.isfinite,
    "log": np.log,
    "log-plus-one": np.log1p,
    "log2": np.log2,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "maximum": _maximum,
    "minimum": _minimum,
    "power": np.power,
    "remainder": np.fmod,
    "round-nearest-afz": _away,
    "round-nearest-even": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sign": lambda x: np.where(np.isnan(x) | (x == 0), x, np.sign(x)),
    "sine": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
_OF_INTEGERS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "count-leading-zeros": _count(lambda v, bits: bits - v.bit_length()),
    "divide": _divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mulhi": _mulhi,
    "popcnt": _count(lambda v, _: v.bit_count()),
    "power": _integer_power,
    "remainder": _remainder,
    "shift-left": _shift(np.left_shift),
    "shift-right-arithmetic": _shift(np.right_shift, arithmetic=True),
    "shift-right-logical": _shift(np.right_shift),
    "sign": np.sign,
}
_OF_ANY: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a | b if a.dtype == bool else a + b,
    "and": np.bitwise_and,
    "complex": _complex,
    "imag": np.imag,
    "multiply": lambda a, b: a & b if a.dtype == bool else a * b,
    "negate": lambda x: -x,
    "not": np.invert,
    "or": np.bitwise_or,
    "real": np.real,
    "select": np.where,
    "subtract": lambda a, b: a ^ b if a.dtype == bool else a - b,
    "xor": np.bitwise_xor,
}
