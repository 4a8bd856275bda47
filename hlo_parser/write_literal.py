"""Constants as text: the shortest numbers that read back to the same bits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .dtypes import ELEMENT_TYPES, ElementType, nan_payload_bits
from .literals import Literal, uniform
from .shapes import ArrayShape, TupleShape

if TYPE_CHECKING:
    import numpy as np


_LONG = 64
"""Elements from which on zeros are written as XLA reads them and not as it prints them."""


def write_literal(literal: Literal) -> str:
    """Write what stands between ``constant(`` and ``)``.

    A long array of zeros is a single 0, which XLA reads as such: its own print would be megabytes.
    """
    if isinstance(literal.shape, TupleShape):
        return f"( {', '.join(map(write_literal, literal.elements))} )"
    assert isinstance(literal.shape, ArrayShape)
    if literal.array is None:
        return literal.text or "{...}"
    array, kind = literal.array, ELEMENT_TYPES[literal.shape.dtype]
    if array.ndim == 0:
        (text,) = _texts(array.reshape(1), kind)
        return {"0": "false", "1": "true"}[text] if kind.kind == "pred" else text
    value = uniform(array)
    return braced(_texts(array.reshape(-1) if value is None else value, kind), array.shape)


def braced(texts: list[str], dims: tuple[int, ...]) -> str:
    """Put braces around the numbers of an array; from rank 4 on, block numbers in comments.

    A single text is that of all elements.
    """
    alike = len(texts) == 1
    if texts == ["0"] and math.prod(dims) >= _LONG:
        return "0"
    size = dims[-1]
    if alike:
        texts = texts * size
    if len(dims) == 1:
        return "{" + ", ".join(texts) + "}"
    count = 1 if alike else math.prod(dims[:-1])
    if size > 1:
        blocks = ["{ " + ", ".join(texts[i * size : (i + 1) * size]) + " }" for i in range(count)]
    else:
        blocks = ["{" + text + "}" for text in texts] if size else ["{}"] * count
    for axis in range(len(dims) - 2, -1, -1):
        size = dims[axis]
        if alike:
            blocks = blocks * size
        if len(dims) >= 4 and axis < len(dims) - 2:
            blocks = [f"{{ /*i{axis}={i % size}*/{block[1:]}" for i, block in enumerate(blocks)]
        count = 1 if alike else math.prod(dims[:axis])
        blocks = ["{ " + ", ".join(blocks[i * size : (i + 1) * size]) + " }" for i in range(count)]
    return blocks[0]


def _texts(flat: np.ndarray[Any, Any], kind: ElementType) -> list[str]:
    if kind.kind == "pred":
        return list(map("01".__getitem__, flat.tolist()))
    if kind.kind == "int":
        wide = flat if kind.bits >= 8 else flat.astype("i1" if kind.name[0] == "s" else "u1")
        return list(map(str, wide.tolist()))
    import numpy as np

    bits = flat.view(f"V{flat.itemsize}" if kind.kind == "complex" else f"u{flat.itemsize}")
    _, first, which = np.unique(bits, return_index=True, return_inverse=True)
    texts = (_complex if kind.kind == "complex" else _floats)(flat[first], kind)
    return list(map(texts.__getitem__, which.tolist()))


def _complex(flat: np.ndarray[Any, Any], kind: ElementType) -> list[str]:
    parts = _texts(flat.view(f"f{kind.bits // 16}"), ELEMENT_TYPES[f"f{kind.bits // 2}"])
    return [f"({real}, {imaginary})" for real, imaginary in zip(parts[::2], parts[1::2], strict=True)]


def _floats(flat: np.ndarray[Any, Any], kind: ElementType) -> list[str]:
    import numpy as np

    texts = _numbers(flat, kind)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        nans = np.flatnonzero(np.isnan(flat))
    for i in nans:
        texts[i] = _nan(flat[i : i + 1], kind)
    return texts


def _numbers(flat: np.ndarray[Any, Any], kind: ElementType) -> list[str]:
    import ml_dtypes
    import numpy as np

    wide = [float(v) for v in flat.tolist()]
    if kind.name == "f8e8m0fnu":  # powers of two, the smallest a subnormal float: rounded digits may miss it
        return [repr(v) for v in wide]
    # As XLA does: f32 and f64 in few digits where those read back to the same number, else in all that can matter.
    precision = ml_dtypes.finfo(kind.numpy).nmant + 1
    enough = math.ceil(1 + precision * math.log10(2))
    texts = [_signed(f"{v:.{enough}g}", v) for v in wide]
    if kind.name in ("f32", "f64"):
        short = [_signed(f"{v:.{enough - (3 if kind.name == 'f32' else 2)}g}", v) for v in wide]
        same = np.array(list(map(float, short))).astype(kind.numpy) == flat
        texts = [few if ok else all_digits for few, all_digits, ok in zip(short, texts, same, strict=True)]
    return texts


def _signed(text: str, value: float) -> str:
    """Return the text, with a point in a negative zero: XLA reads -0 as an integer, without a sign."""
    return "-0.0" if text == "-0" and value == 0 else text


def _nan(value: np.ndarray[Any, Any], kind: ElementType) -> str:
    """Write a NaN with its sign and, where it is not the usual one, its payload."""
    payload_bits = nan_payload_bits(kind)
    bits = int(value.view(f"u{kind.numpy.itemsize}")[0])
    payload = bits & (1 << payload_bits) - 1
    sign = "-" if bits >> kind.bits - 1 and not kind.name.endswith("fnu") else ""
    usual = not payload_bits or payload == 1 << payload_bits - 1
    return f"{sign}nan" if usual else f"{sign}nan(0x{payload:x})"
