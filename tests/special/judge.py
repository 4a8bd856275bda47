"""Whether a result is as good as XLA's: the same, or nearer to the exact one."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

UNITS = {"f32": 4.0, "f64": 4.0, "f16": 1.0, "bf16": 1.0}
"""Units in the last place by which a result may be off, whatever XLA's is."""

Reference = Callable[..., np.ndarray]
wide = np.longdouble


def _logistic(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


def _away(x: np.ndarray) -> np.ndarray:
    # Beyond 2^62 there are no halves, and where none is added no even number is made odd.
    return np.copysign(np.where(np.abs(x) < 2.0**62, np.floor(np.abs(x) + wide(0.5)), np.abs(x)), x)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) if abs(v) > 1e-30 else v * wide(2) / np.sqrt(wide(np.pi)) for v in x], wide)


def _extremum(pick: Callable[..., np.ndarray], sign: Callable[..., np.ndarray]) -> Reference:
    """By IEEE 754's `maximum` and `minimum`, to which -0 is less than 0."""

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        zero = np.where(sign(np.signbit(a), np.signbit(b)), wide(-0.0), wide(0.0))
        return np.where((a == 0) & (b == 0), zero, pick(a, b))

    return run


UNARY: dict[str, Reference] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cosh": np.cosh,
    "cosine": np.cos,
    "erf": _erf,
    "exp2": np.exp2,
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "floor": np.floor,
    "is-finite": np.isfinite,
    "log": np.log,
    "log-plus-one": np.log1p,
    "log2": np.log2,
    "logistic": _logistic,
    "negate": np.negative,
    "round-nearest-afz": _away,
    "round-nearest-even": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    "sine": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
BINARY: dict[str, Reference] = {
    "add": np.add,
    "atan2": np.arctan2,
    "divide": np.divide,
    "maximum": _extremum(np.maximum, np.logical_and),
    "minimum": _extremum(np.minimum, np.logical_or),
    "multiply": np.multiply,
    "power": np.power,
    "remainder": np.fmod,
    "subtract": np.subtract,
}


COMPARE: dict[str, Reference] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}

TERNARY: dict[str, Reference] = {
    "clamp": lambda x, low, high: BINARY["minimum"](BINARY["maximum"](x, low), high),
}


def power_of_integers(base: int, exponent: int) -> int:
    """With a negative exponent the whole part of the reciprocal; 0 has none, and any answer will do."""
    if exponent >= 0:
        return int(base**exponent) if exponent < 256 or abs(base) < 2 else pow(base, exponent, 2**64)
    return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)


def integer(op: str, a: int, b: int, bits: int) -> int | None:
    """The exact answer, before it wraps around, where XLA's own is not it or not to be had."""
    if op == "power":
        return power_of_integers(a, b)
    return (a * b) >> bits if op == "mulhi" else None


def wrong(got: np.ndarray, xla: np.ndarray, exact: np.ndarray | None, dtype: str) -> np.ndarray:
    """The places where a result is neither XLA's nor as near to the exact one."""
    same = _identical(got, xla)
    if exact is None or dtype not in UNITS:
        return ~same if exact is None else ~same & (got != exact)
    allowed = np.maximum(_units(xla, exact, dtype), UNITS[dtype])
    return ~same & ~(_units(got, exact, dtype) <= allowed)


def _identical(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "biu":
        return a == b
    a, b = a.astype(wide), b.astype(wide)
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))


def _units(value: np.ndarray, exact: np.ndarray, dtype: str) -> np.ndarray:
    """Distance in units in the last place: infinite where a NaN, an infinity or a zero's sign is wrong. All numbers
    below the normal ones are alike but for their sign: XLA's threads read them as zero.
    """
    info = ml_dtypes.finfo(value.dtype)
    tiny, unit = wide(info.tiny), wide(info.eps)
    value, largest = value.astype(wide), wide(info.max)
    overflows = np.abs(exact) > largest * (1 + unit / 4)
    exact = np.where(overflows, np.copysign(wide(np.inf), exact), exact)
    spacing = unit * np.exp2(np.floor(np.log2(np.clip(np.abs(exact), tiny, largest))))
    distance = np.abs(value - exact) / spacing
    distance = np.where((np.abs(exact) < tiny) & (np.abs(value) < tiny), 0, distance)
    special = ~np.isfinite(exact) | ~np.isfinite(value) | (np.abs(exact) < tiny) | (np.abs(value) < tiny)
    right = (np.isnan(exact) & np.isnan(value)) | (value == exact) | (np.isfinite(exact) & np.isfinite(value))
    signs = (np.signbit(value) == np.signbit(exact)) | np.isnan(exact)
    return np.where(special, np.where(right & signs, np.nan_to_num(distance), np.inf), distance)
