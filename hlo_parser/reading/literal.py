"""Grammar of constants.

An array literal is checked as a whole: its braces and commas must equal those the shape calls for, and its numbers are
converted in bulk. Only text that fails is read token by token: as XLA does, to which commas mean nothing, or, where
only what XLA prints is wanted, to find the place for the message.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..dtypes import ELEMENT_TYPES, ElementType
from ..literals import Literal
from ..regex import regex
from ..shapes import ArrayShape, Shape, TupleShape
from .literal_tokens import printed_fault, read_as_text, read_by_tokens
from .scan import COMMENT, MAX_DEPTH, SPACE, Scanner

if TYPE_CHECKING:
    import numpy as np

_MAX_RANK = 64  # of numpy's arrays
_COMMENT = regex(COMMENT)
_MISSING = regex(rf"{SPACE}\{{{SPACE}\.\.\.{SPACE}\}}", re.ASCII)
_SCALAR = regex(rf"{SPACE}(\([^()\n]*+(?:\([^()\n]*+\)[^()\n]*+)*+\)|-?nan\(0x[0-9a-fA-F]+\)|[-\w.+]++)", re.ASCII)
_NOT_STRUCTURE = {c: None for c in range(128) if chr(c) not in "{},"}


def read_literal(s: Scanner, shape: Shape, depth: int = 0) -> Literal:
    """Read a literal of the given shape at the cursor."""
    if depth > MAX_DEPTH:
        s.error(f"tuples are nested deeper than {MAX_DEPTH} levels")
    match shape:
        case TupleShape(elements):
            if s.match(_MISSING):
                return Literal(shape, elements=tuple(_missing(e) for e in elements))
            s.expect("(", f"to begin a literal of shape {shape}")
            values = []
            for i, element in enumerate(elements):
                if i and not s.accept(",") and s.strict:
                    s.expected("',' between the elements of a tuple literal")
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
    """Return what matches the text of an array literal of that rank, braces and all."""
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
    if not kind.has_numpy:
        return Literal(shape, text=read_as_text(s, shape_of_value, kind))
    values = _in_bulk(s, shape_of_value, kind)
    if values is None:
        s.pos = start
        values = printed_fault(s, start, shape) if s.strict else read_by_tokens(s, shape_of_value, kind)
    if values is None:
        return Literal(shape)
    return Literal.of(values.reshape(shape_of_value.dims), shape) if not any(shape.dynamic) else Literal(shape, values)


def _in_bulk(s: Scanner, shape: ArrayShape, kind: ElementType) -> np.ndarray[Any, Any] | None:
    """Return the values, flat, of a literal that is written as XLA prints it; None for others."""
    from hlo_parser.convert_literal import convert, convert_array, empty

    m = s.match(_extent(shape.rank) if shape.rank else _SCALAR)
    if m is None:
        return None
    text = m[1]
    if shape.rank:
        if "/" in text:
            text = _COMMENT.sub("", text)
        if text.translate(_NOT_STRUCTURE) != _structure(shape.dims, kind.kind, text):
            return None
    if not shape.size:
        return empty(shape.dims, kind)
    try:
        return convert_array(text, kind, shape.size) if shape.rank else convert(text, kind)
    except (ValueError, OverflowError):
        return None


def _structure(dims: tuple[int, ...], kind: str, text: str) -> str:
    """Return the braces and commas of a literal with these dimensions. A complex number has a comma of its own."""
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
