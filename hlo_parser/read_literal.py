"""Grammar of constants.

An array literal is checked as a whole: its braces and commas must equal those the shape calls for, and its numbers are
converted in bulk. Only text that fails is read element by element, to find the place for the message.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NoReturn

import numpy as np

from .dtypes import ELEMENT_TYPES, ElementType, nan_payload_bits
from .literals import Literal
from .scan import MAX_DEPTH, SPACE, Scanner
from .shapes import ArrayShape, Shape, TupleShape

_CHUNK = (
    1 << 18
)  # characters converted at once: the values of a chunk are Python objects, which take ten times the text
_MAX_RANK = 64  # of numpy's arrays
_COMMENT = re.compile(r"/\*(?s:.*?)\*/|//[^\r\n]*")
_MISSING = re.compile(rf"{SPACE}\{{{SPACE}\.\.\.{SPACE}\}}", re.ASCII)
_SCALAR = re.compile(rf"{SPACE}(\([^()\n]*+(?:\([^()\n]*+\)[^()\n]*+)*+\)|-?nan\(0x[0-9a-fA-F]+\)|[-\w.+]++)", re.ASCII)
_FLOAT = r"(?:-?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?|-?inf|-?nan(?:\(0x[0-9a-fA-F]++\))?)"
_ELEMENT = {
    "pred": re.compile(r"true|false|-?\d++", re.ASCII),
    "int": re.compile(r"-?\d++|true|false", re.ASCII),
    "float": re.compile(_FLOAT, re.ASCII),
    "complex": re.compile(rf"\(\s*+{_FLOAT}\s*+,\s*+{_FLOAT}\s*+\)|{_FLOAT}", re.ASCII),
}
_NAN = re.compile(r"(-?)nan(?:\(0x([0-9a-fA-F]++)\))?", re.ASCII)
_COMPLEX = re.compile(r"\(([^(),]*(?:\([^()]*\))?),([^(),]*(?:\([^()]*\))?)\)")
_NOT_STRUCTURE = {c: None for c in range(128) if chr(c) not in "{},"}
_BRACES_TO_NOTHING = str.maketrans("", "", "{}")
_LIST = {
    k: re.compile(rf"\s*+(?:{e.pattern})\s*+(?:,\s*+(?:{e.pattern})\s*+)*+", re.ASCII) for k, e in _ELEMENT.items()
}


def read_literal(s: Scanner, shape: Shape, depth: int = 0) -> Literal:
    """A literal of the given shape at the cursor."""
    if depth > MAX_DEPTH:
        s.error(f"tuples are nested deeper than {MAX_DEPTH} levels")
    match shape:
        case TupleShape(elements):
            if s.match(_MISSING):
                return Literal(shape, elements=tuple(_missing(e) for e in elements))
            s.expect("(", f"to begin a literal of shape {shape}")
            values = []
            for i, element in enumerate(elements):
                if i:
                    s.expect(",", "between the elements of a tuple literal")
                values.append(read_literal(s, element, depth + 1))
            s.expect(")", "after the last element of a tuple literal")
            return Literal(shape, elements=tuple(values))
        case ArrayShape():
            return _array(s, shape)
        case _:
            s.error(f"a constant cannot have shape {shape}")


def _missing(shape: Shape) -> Literal:
    return Literal(shape, elements=tuple(map(_missing, shape.elements)) if isinstance(shape, TupleShape) else ())


@lru_cache(maxsize=64)
def _extent(rank: int) -> re.Pattern[str]:
    """Text of an array literal of that rank, braces and all."""
    pattern = r"\{[^{}]*+\}"
    for _ in range(rank - 1):
        pattern = rf"\{{[^{{}}]*+(?:{pattern}[^{{}}]*+)*+\}}"
    return re.compile(SPACE + "(" + pattern + ")", re.ASCII)


def _array(s: Scanner, shape: ArrayShape) -> Literal:
    if any(shape.dynamic):
        shape_of_value = ArrayShape(shape.dtype, tuple(max(d, 0) for d in shape.dims))
    else:
        shape_of_value = shape
    kind = ELEMENT_TYPES[shape.dtype]
    if s.match(_MISSING):
        return Literal(shape)
    start = s.skip()
    if shape.rank > _MAX_RANK:
        s.error(f"constants of rank above {_MAX_RANK} cannot be held", start)
    if shape.rank == 0:
        m = s.match(_SCALAR)
        if m is None:
            s.expected(f"a value of type {shape.dtype}")
        text = m[1]
    else:
        m = s.match(_extent(shape.rank))
        if m is None:
            _fault(s, start, shape)
        text = m[1]
        if "/" in text:
            text = _COMMENT.sub("", text)
        if text.translate(_NOT_STRUCTURE) != _structure(shape_of_value.dims, kind.kind, text):
            _fault(s, start, shape)
    if not shape_of_value.size:
        return Literal.of(np.empty(shape_of_value.dims, kind.numpy), shape)
    try:
        values = _convert(text, kind, shape.rank == 0)
    except (ValueError, OverflowError):
        _fault(s, start, shape)
    if values.size != shape_of_value.size:
        _fault(s, start, shape)
    return Literal.of(values.reshape(shape_of_value.dims), shape) if not any(shape.dynamic) else Literal(shape, values)


def _structure(dims: tuple[int, ...], kind: str, text: str) -> str:
    """The braces and commas of a literal with these dimensions. A complex number has a comma of its own."""
    inner = ""
    if kind == "complex" and "(" in text:
        inner = ","
    if 0 in dims:
        dims = dims[: dims.index(0) + 1]
    for d in reversed(dims):
        # Text longer than the literal cannot be equal to it; never build it.
        if (len(inner) + 1) * d > len(text) + 2:
            return "too long"
        inner = "{" + ",".join([inner] * d) + "}"
    return inner


def _convert(text: str, kind: ElementType, scalar: bool) -> np.ndarray:
    """All numbers of a literal, flat. Raises ValueError or OverflowError."""
    body = text if scalar else text.translate(_BRACES_TO_NOTHING)
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
        return _narrow(np.array(list(map(float, words)), np.float64), kind)
    if kind.kind == "pred":
        return np.array([w.strip() not in ("false", "0") for w in words], np.bool_)
    numbers = [int(w) if w.strip() not in ("true", "false") else w.strip() == "true" for w in words]
    low, high = (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1) if kind.name[0] == "s" else (0, (1 << kind.bits) - 1)
    if min(numbers) < low or max(numbers) > high:
        raise OverflowError(f"out of the range of {kind.name}")
    return np.array(numbers, np.int64 if kind.name[0] == "s" else np.uint64).astype(kind.numpy)


def _narrow(wide: np.ndarray, kind: ElementType) -> np.ndarray:
    """Doubles as an array of the type. Raises OverflowError where a finite number has no finite neighbour in it."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = wide.astype(kind.numpy)
        if not np.isfinite(values.astype(np.float64))[np.isfinite(wide)].all():
            raise OverflowError(f"out of the range of {kind.name}")
    return values


def _convert_with_nans(words: list[str], kind: ElementType) -> np.ndarray:
    """Floats, some of them NaNs with a sign and perhaps a payload, which no conversion keeps: they are set as bits."""
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
    for m in _ELEMENT["complex"].finditer(body):
        pair = _COMPLEX.fullmatch(m[0])
        words += [pair[1], pair[2]] if pair else [m[0], "0"]
    flat = _convert_real(words, part)
    return flat.view(kind.numpy)


def _fault(s: Scanner, start: int, shape: ArrayShape) -> NoReturn:
    """Read a faulty literal element by element and raise at the first wrong place."""
    kind = ELEMENT_TYPES[shape.dtype]
    s.pos = start

    def element() -> None:
        s.skip()
        m = s.match(_ELEMENT[kind.kind])
        if m is None or (s.pos < len(s.text) and (s.text[s.pos].isalnum() or s.text[s.pos] in "._")):
            s.pos = s.pos if m is None else m.start()
            s.expected(f"a value of type {shape.dtype}")
        try:
            _convert(m[0], kind, True)
        except (ValueError, OverflowError):
            s.error(f"{m[0]} does not fit {shape.dtype}", m.start())

    def block(dims: tuple[int, ...]) -> None:
        if not dims:
            return element()
        if not s.accept("{"):
            s.expected(f"'{{' to begin {dims[0]} values of {shape}")
        for i in range(max(dims[0], 0)):
            if i and not s.accept(","):
                s.expected(f"',' after value {i} of {dims[0]} along a dimension of {shape}")
            block(dims[1:])
        if not s.accept("}"):
            s.expected(f"'}}' after {dims[0]} values along a dimension of {shape}")

    block(shape.dims)
    s.error(f"this is no literal of shape {shape}", start)
