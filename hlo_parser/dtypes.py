"""HLO's element types and the numpy types that hold them.

Arrays are numpy's. The rest of the library does without: where numpy and ml_dtypes are not installed, constants are
kept as text.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type: HLO name, kind ("pred", "int", "float", "complex") and width in bits."""

    name: str
    kind: str
    bits: int

    @property
    def numpy(self) -> np.dtype[Any]:
        """Return the numpy type. Raises ImportError where numpy or ml_dtypes is missing, or is older than the type."""
        numpy_type = _numpy_type(self.name)
        if numpy_type is None:
            raise ImportError(f"arrays of {self.name} need numpy and a recent ml_dtypes: pip install numpy ml_dtypes")
        return numpy_type

    @property
    def has_numpy(self) -> bool:
        """Return whether there is a numpy type for it."""
        return _numpy_type(self.name) is not None


@functools.cache
def _numpy_type(name: str) -> np.dtype[Any] | None:
    try:
        numpy, narrow = importlib.import_module("numpy"), importlib.import_module("ml_dtypes")
    except ImportError:
        return None
    usual = {"pred": "bool_", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"}
    stem = {"s": "int", "u": "uint", "f": "float"}.get(name[0], "")
    wanted = usual.get(name, stem + name[1:].replace("e", "_e", 1))
    scalar = getattr(numpy, wanted, None) or getattr(narrow, wanted, None)
    return None if scalar is None else numpy.dtype(scalar)


def _table() -> dict[str, ElementType]:
    types = [ElementType("pred", "pred", 8)]
    types += [ElementType(f"{letter}{bits}", "int", bits) for bits in (8, 16, 32, 64, 1, 2, 4) for letter in "su"]
    types += [ElementType(f"f{bits}", "float", bits) for bits in (16, 32, 64)]
    types.append(ElementType("bf16", "float", 16))
    names = "f8e3m4 f8e4m3 f8e4m3b11fnuz f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0fnu f4e2m1fn"
    types += [ElementType(name, "float", int(name[1])) for name in names.split()]
    types += [ElementType("c64", "complex", 64), ElementType("c128", "complex", 128)]
    return {t.name: t for t in types}


ELEMENT_TYPES: dict[str, ElementType] = _table()

COMPLEX_PARTS = {"c64": "f32", "c128": "f64"}
"""The types of the real and imaginary parts of complex numbers."""


_MANTISSA = {"f16": 10, "f32": 23, "f64": 52, "bf16": 7, "f8e3m4": 4, "f8e4m3": 3, "f8e5m2": 2}


def nan_payload_bits(kind: ElementType) -> int:
    """Return the width of the payload of a float type's NaNs, its mantissa; 0 for types that have but one NaN (or one
    of each sign).
    """
    return _MANTISSA.get(kind.name, 0)
