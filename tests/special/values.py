"""A grid of values at which operations are special, for each element type."""

from __future__ import annotations

import ml_dtypes
import numpy as np

_NAMES = {"s": "int", "u": "uint"}
INTEGERS = tuple(f"{sign}{width}" for sign in _NAMES for width in (8, 16, 32, 64))
FLOATS = ("bf16", "f16", "f32", "f64")
TYPES: dict[str, np.dtype] = {
    "pred": np.dtype(bool),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    **{name: np.dtype(_NAMES[name[0]] + name[1:]) for name in INTEGERS},
}

SMALL = (0.25, 0.5, 0.75, 0.999, 1.0, 1.001, 1.5, 2.0, 2.5, 3.0, 3.5, 7.0, 10.0, 42.5, 88.0, 127.0, 128.0, 255.0, 256.0)
"""Halves, where functions have corners, and the bounds of small integers: within the range of every float."""

BOUNDS = (2.0**15, 2.0**16, 2.0**24 - 1, 2.0**24 + 2, 2.0**31, 2.0**32, 2.0**53 - 1, 2.0**63, 2.0**64)
"""Of larger integers."""


def special(dtype: str) -> np.ndarray:
    """The values of a type: for floats of both signs, with zeros, subnormals, infinities and a NaN."""
    if dtype == "pred":
        return np.array([False, True])
    if dtype in INTEGERS:
        return _integers(dtype)
    info = ml_dtypes.finfo(TYPES[dtype])
    tiny, step, largest = float(info.tiny), float(info.smallest_subnormal), float(info.max)
    subnormal = (step, 3 * step, tiny / 2, tiny - step)
    normal = (tiny, 1.5 * tiny, 2 * tiny, 4 * tiny, float(info.eps) / 8, float(info.eps), 1e-3)
    large = (*(b for b in BOUNDS if b < largest), largest / 4, largest / 2, largest, np.inf)
    positive = (0.0, *subnormal, *normal, *SMALL, *large)
    return np.array([*positive, *(-v for v in positive), np.nan], np.float64).astype(TYPES[dtype])


def _integers(dtype: str) -> np.ndarray:
    info = np.iinfo(TYPES[dtype])
    near = (0, 1, 2, 3, 5, 7, 8, 10, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 126, 127)
    powers = (2**k + d for k in (7, 8, 15, 16, 24, 31, 32, 53, 62) for d in (-1, 0, 1))
    found = {sign * n for n in (*near, *powers) for sign in (1, -1)}
    found |= {info.min, info.min + 1, info.max - 1, info.max}
    return np.array(sorted(n for n in found if info.min <= n <= info.max), TYPES[dtype])


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Each of the values with each."""
    left, right = np.meshgrid(special(dtype), special(dtype), indexing="ij")
    return left.ravel(), right.ravel()
