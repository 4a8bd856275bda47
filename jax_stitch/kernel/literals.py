"""Constants as bits and back."""

from __future__ import annotations

import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.kernel.expressions import Literal

HALF = frozenset({"bf16", "f16"})
"""Sub-word floats, which are computed in ``f32``."""


def computed(dtype: str) -> str:
    """Return the element type that values of ``dtype`` are computed in."""
    return "f32" if dtype in HALF else dtype


def numpy_type(dtype: str) -> np.dtype:
    """Return the NumPy type of what is computed in ``dtype``."""
    return np.dtype(ELEMENT_TYPES[computed(dtype)].numpy)


def literal(value: np.generic | np.ndarray | float | int, dtype: str) -> Literal:
    """Return a constant of the type ``dtype``, exact to the bit."""
    number = np.asarray(value).astype(numpy_type(dtype)).reshape(())
    return Literal(dtype, int.from_bytes(number.tobytes(), "little"))


def number(constant: Literal) -> np.generic:
    """Return the value of a constant."""
    dtype = numpy_type(constant.dtype)
    return np.frombuffer(constant.bits.to_bytes(dtype.itemsize, "little"), dtype)[0]
