"""The numbers of a constant's text as arrays: exact, with the payloads of NaNs, and in bulk."""

from __future__ import annotations

import re

import numpy as np

from .dtypes import ELEMENT_TYPES, ElementType, nan_payload_bits
from .literal_words import ELEMENT
from .regex import regex

_CHUNK = 1 << 18
"""Characters converted at once: the values of a chunk are Python objects, which take ten times the text."""
_NAN = regex(r"(-?)nan(?:\(0x([0-9a-fA-F]++)\))?", re.ASCII)
_DIGITS = regex(r"-?\d++", re.ASCII)
_COMPLEX = regex(r"\(([^(),]*(?:\([^()]*\))?),([^(),]*(?:\([^()]*\))?)\)")
_BRACES_TO_NOTHING = str.maketrans("", "", "{}")
_LIST = {k: regex(rf"\s*+(?:{e.pattern})\s*+(?:,\s*+(?:{e.pattern})\s*+)*+", re.ASCII) for k, e in ELEMENT.items()}


def empty(dims: tuple[int, ...], kind: ElementType) -> np.ndarray:
    """Return an array without elements."""
    return np.empty(dims, kind.numpy)


def filled(words: list[str], size: int, kind: ElementType) -> np.ndarray:
    """Return the values of the words, and zeros behind them. Raises ValueError or OverflowError."""
    given = convert(",".join(words), kind) if words else empty((0,), kind)
    if not any(given.tobytes()):
        return np.broadcast_to(np.zeros((), kind.numpy), (size,))
    values = np.zeros(size, kind.numpy)
    values[: len(words)] = given
    return values


def convert_array(text: str, kind: ElementType, size: int) -> np.ndarray:
    """Return the ``size`` numbers between the braces of an array, flat. Raises ValueError or OverflowError.

    Where all are written alike, one is converted.
    """
    body = text.translate(_BRACES_TO_NOTHING)
    while "  " in body:
        body = body.replace("  ", " ")
    body = body.replace(" ,", ",").replace(", ", ",").strip(" ")
    word = body[: (len(body) + 1) // size - 1]
    values = convert(word, kind) if body == ",".join([word] * size) else convert(body, kind)
    if values.size == 1:
        return np.broadcast_to(values, (size,))
    if values.size != size:
        raise ValueError(f"{values.size} numbers, not {size}")
    return values


def convert(body: str, kind: ElementType) -> np.ndarray:
    """Return all numbers of a list. Raises ValueError or OverflowError."""
    if kind.kind == "complex":
        return _convert_complex(body, kind)
    parts = []
    for chunk in _chunks(body):
        if not _LIST[kind.kind].fullmatch(chunk):
            raise ValueError("not a list of numbers")
        parts.append(_convert_real(chunk.split(","), kind))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _chunks(body: str) -> list[str]:
    """Cut at commas into pieces of bounded length."""
    if len(body) <= _CHUNK:
        return [body]
    pieces, start = [], 0
    while len(body) - start > _CHUNK:
        end = body.find(",", start + _CHUNK)
        if end < 0:
            break
        pieces.append(body[start:end])
        start = end + 1
    return [*pieces, body[start:]]


def _convert_real(words: list[str], kind: ElementType) -> np.ndarray:
    if kind.kind == "float":
        if any("nan" in w for w in words):
            return _convert_with_nans(words, kind)
        return _narrow(_doubles(words), kind)
    if kind.kind == "pred":
        return np.array([w.strip() == "true" or (w.strip() != "false" and int(w) != 0) for w in words], np.bool_)
    numbers = list(map(int, words))
    signed = kind.name[0] == "s"
    low, high = (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1) if signed else (0, (1 << kind.bits) - 1)
    if min(numbers) < low or max(numbers) > high:
        # XLA keeps numbers from -2^63 to 2^64 - 1 in 64 bits whose sign it forgets.
        numbers = [_wrapped(n, signed, kind) if not low <= n <= high else n for n in numbers]
    return np.array(numbers, np.int64 if signed else np.uint64).astype(kind.numpy)


def _wrapped(n: int, signed: bool, kind: ElementType) -> int:
    """Return the number that 64 bits without a sign hold for ``n``, in the range of the type. Raises OverflowError."""
    bits = n & (1 << 64) - 1
    kept = bits - (bits >> 63 << 64) if signed else bits
    low, high = (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1) if signed else (0, (1 << kind.bits) - 1)
    if not -(1 << 63) <= n < 1 << 64 or not low <= kept <= high or (kind.bits < 8 and not signed):
        raise OverflowError(f"out of the range of {kind.name}")
    return kept


def _doubles(words: list[str]) -> np.ndarray:
    """Return the doubles nearest to the numbers. Raises OverflowError where there is none."""
    wide = np.array(list(map(float, words)), np.float64)
    if max(map(len, words)) > 18:  # XLA reads digits alone as an integer, as above
        for n, word in enumerate(words):
            if len(word) > 18 and _DIGITS.fullmatch(word.strip()):
                wide[n] = float(_wrapped(int(word), True, ELEMENT_TYPES["s64"]))
    if np.isinf(wide).any() and any("inf" not in words[n] for n in np.flatnonzero(np.isinf(wide))):
        raise OverflowError("out of the range of f64")
    return wide


def _narrow(wide: np.ndarray, kind: ElementType) -> np.ndarray:
    """Return doubles as an array of the type. Raises OverflowError where a finite number has no finite neighbour."""
    if kind.name == "f8e8m0fnu":  # has no 0: what is nearer to it is the smallest power of two
        wide = np.where((wide > 0) & (wide < 2.0**-127), 2.0**-127, wide)
    with np.errstate(over="ignore", invalid="ignore"):
        values = wide.astype(kind.numpy)
        if not np.isfinite(values.astype(np.float64))[np.isfinite(wide)].all():
            raise OverflowError(f"out of the range of {kind.name}")
    return values


def _convert_with_nans(words: list[str], kind: ElementType) -> np.ndarray:
    """Convert floats, some of them NaNs with a sign and perhaps a payload, which no conversion keeps: set as bits."""
    nans = [(i, m) for i, w in enumerate(words) if (m := _NAN.fullmatch(w.strip()))]
    plain = [1.0 if "nan" in w else float(w) for w in words]
    values = _narrow(np.array(plain, np.float64), kind)
    for i, m in nans:
        values[i] = _nan(m, kind)
    return values


def _nan(m: re.Match[str], kind: ElementType) -> np.generic:
    value = np.array([float("nan")]).astype(kind.numpy)
    bits = value.view(f"u{kind.numpy.itemsize}")
    width = nan_payload_bits(kind)
    if m[2] and not 0 < int(m[2], 16) < 1 << width:
        raise OverflowError("NaN payload out of range")
    if width:
        mask = (1 << width) - 1
        payload = int(m[2], 16) if m[2] else 1 << width - 1
        bits[0] = int(bits[0]) & ~mask & (1 << kind.bits - 1) - 1 | payload
    if not kind.name.endswith(("fnu", "fnuz")):  # these have one NaN, without a sign
        bits[0] = int(bits[0]) & (1 << kind.bits - 1) - 1 | (bool(m[1]) << kind.bits - 1)
    nan: np.generic = value[0]
    return nan


def _convert_complex(body: str, kind: ElementType) -> np.ndarray:
    part = ELEMENT_TYPES["f32" if kind.name == "c64" else "f64"]
    if not _LIST["complex"].fullmatch(body):
        raise ValueError("not a list of complex numbers")
    words: list[str] = []
    for m in ELEMENT["complex"].finditer(body):
        pair = _COMPLEX.fullmatch(m[0])
        assert pair is not None
        words += [pair[1], pair[2]]
    flat = _convert_real(words, part)
    return flat.view(kind.numpy)
