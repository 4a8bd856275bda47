"""HLO's element types and the numpy types that hold them."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type: HLO name, numpy type, kind ("pred", "int", "float", "complex") and width in bits."""

    name: str
    numpy: np.dtype
    kind: str
    bits: int


def _table() -> dict[str, ElementType]:
    types = [ElementType("pred", np.dtype(np.bool_), "pred", 8)]
    for bits in (8, 16, 32, 64):
        types.append(ElementType(f"s{bits}", np.dtype(f"int{bits}"), "int", bits))
        types.append(ElementType(f"u{bits}", np.dtype(f"uint{bits}"), "int", bits))
    for bits in (1, 2, 4):
        for letter, stem in (("s", "int"), ("u", "uint")):
            if hasattr(ml_dtypes, f"{stem}{bits}"):  # the narrowest came late to ml_dtypes
                types.append(ElementType(f"{letter}{bits}", np.dtype(getattr(ml_dtypes, f"{stem}{bits}")), "int", bits))
    for bits in (16, 32, 64):
        types.append(ElementType(f"f{bits}", np.dtype(f"float{bits}"), "float", bits))
    types.append(ElementType("bf16", np.dtype(ml_dtypes.bfloat16), "float", 16))
    narrow = (
        "f8e3m4",
        "f8e4m3",
        "f8e4m3b11fnuz",
        "f8e4m3fn",
        "f8e4m3fnuz",
        "f8e5m2",
        "f8e5m2fnuz",
        "f8e8m0fnu",
        "f4e2m1fn",
    )
    for name in narrow:
        if hasattr(ml_dtypes, f"float{name[1:].replace('e', '_e', 1)}"):
            numpy = np.dtype(getattr(ml_dtypes, f"float{name[1:].replace('e', '_e', 1)}"))
            types.append(ElementType(name, numpy, "float", int(name[1])))
    types.append(ElementType("c64", np.dtype(np.complex64), "complex", 64))
    types.append(ElementType("c128", np.dtype(np.complex128), "complex", 128))
    return {t.name: t for t in types}


ELEMENT_TYPES: dict[str, ElementType] = _table()


def nan_payload_bits(kind: ElementType) -> int:
    """Width of the payload of a float type's NaNs; 0 for types that have but one NaN (or one of each sign)."""
    if kind.kind != "float" or kind.name.endswith(("fn", "fnu", "fnuz")):
        return 0
    # The mantissa: one bit less than the bits of precision.
    return int(ml_dtypes.finfo(kind.numpy).nmant)
