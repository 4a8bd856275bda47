"""Constants token by token: those that XLA would not print, but reads; and the place of what is wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from ..dtypes import ELEMENT_TYPES, ElementType
from ..literal_words import ELEMENT
from ..regex import regex
from ..shapes import ArrayShape
from ..write_literal import braced
from .scan import COMMENT, SPACE, Scanner

if TYPE_CHECKING:
    import numpy as np

_LARGEST = 1 << 32  # bytes of an array that is made of a text shorter than its values
_MANY = 4096  # values that are tried at once
_WORD = r"-?nan\(0x[0-9a-fA-F]++\)|[-\w][\w.]*+(?:(?<=[eE])[+-]\d++)?"
_TOKEN = regex(rf"{SPACE}(?:([{{}},])|(\.\.\.)|({_WORD}|\((?:[^(){{}}/]|{COMMENT}|\(0x[0-9a-fA-F]++\))*+\)))", re.ASCII)
_COMMENT = regex(COMMENT)


def read_by_tokens(s: Scanner, shape: ArrayShape, kind: ElementType) -> np.ndarray[Any, Any] | None:
    """Return the values, flat, as XLA reads them; None where the text elides them.

    Commas may stand anywhere or nowhere. A value without braces is the first of an array that is 0 elsewhere.
    """
    start = s.pos
    words, elided = _read_words(s, shape, kind)
    if elided:
        return None
    size = shape.size
    if size * max(kind.bits, 8) > 8 * _LARGEST and len(words) < size:
        s.error(f"a constant of shape {shape} is too large to hold", start)
    from hlo_parser.convert_literal import filled

    try:
        return filled(words, size, kind)
    except (ValueError, OverflowError):
        s.pos = start
        _read_words(s, shape, kind, wrong=_first_wrong(words, kind))
        s.error(f"this is no literal of shape {shape}", start)


def _first_wrong(words: list[str], kind: ElementType) -> int:
    """Find the first value that does not fit the type: one at a time only where many at once fail."""
    for begin in range(0, len(words), _MANY):
        many = words[begin : begin + _MANY]
        if not _fits(many, kind):
            return next((begin + n for n, word in enumerate(many) if not _fits([word], kind)), -1)
    return -1


def _fits(words: list[str], kind: ElementType) -> bool:
    from hlo_parser.convert_literal import convert

    try:
        convert(",".join(words), kind)
    except (ValueError, OverflowError):
        return False
    return True


def read_as_text(s: Scanner, shape: ArrayShape, kind: ElementType) -> str:
    """Return the values as XLA writes them, without looking at them: whether they fit the type is not checked."""
    start = s.pos
    words, elided = _read_words(s, shape, kind)
    if elided:
        return ""
    if shape.size > _LARGEST // 64 and len(words) < shape.size:
        s.error(f"a constant of shape {shape} is too large to hold", start)
    zero = "(0, 0)" if kind.kind == "complex" else "0"
    if kind.kind == "pred":
        words = [str(int(word == "true" or (word != "false" and int(word) != 0))) for word in words]
    if len(words) < shape.size:
        words = [zero] if set(words) <= {zero} else [*words, *[zero] * (shape.size - len(words))]
    if not shape.rank:
        return {"0": "false", "1": "true"}[words[0]] if kind.kind == "pred" else words[0]
    return braced(words[:1] if len(set(words)) == 1 else words, shape.dims)


def _read_words(s: Scanner, shape: ArrayShape, kind: ElementType, wrong: int = -1) -> tuple[list[str], bool]:
    """Read the texts of the values, and whether there are dots in the place of some. Number ``wrong`` does not fit
    the type."""
    dims = shape.dims
    words: list[str] = []
    seen = [0] * len(dims)  # values or blocks read so far along each dimension
    depth, elided = 0, False
    while True:
        m = s.match(_TOKEN)
        if m is None:
            s.expected(f"a value of type {shape.dtype}")
        at = m.start(m.lastindex or 0)
        if m[1] == "{":
            if depth == len(dims):
                s.error(f"expected a value of type {shape.dtype}, found '{{': {shape} has {depth} dimensions", at)
            if depth:
                _count(s, seen, depth - 1, shape, at)
            depth += 1
        elif m[1] == "}":
            if depth == 0:
                s.error(f"expected a value of type {shape.dtype}, found '}}'", at)
            depth -= 1
            if seen[depth] != dims[depth] and not (elided and depth == 0):
                s.error(f"expected {dims[depth]} values along dimension {depth} of {shape}, found {seen[depth]}", at)
            seen[depth] = 0
        elif m[2]:
            if depth != 1:
                s.error("'...' can only stand in the outermost braces of a literal", at)
            elided = True
        elif m[3]:
            if depth not in (0, len(dims)):
                s.error(f"expected '{{', found {m[3]!r}: {shape} has {len(dims)} dimensions", at)
            if depth:
                _count(s, seen, depth - 1, shape, at)
            elif dims and kind.kind == "complex":
                s.error(f"expected '{{' before the values of {shape}", at)
            elif dims and not shape.size:
                s.error(f"a value for {shape}, which has none", at)
            words.append(_word(s, m[3], kind, at, wrong == len(words)))
        if depth == 0:
            return words, elided


def _count(s: Scanner, seen: list[int], axis: int, shape: ArrayShape, at: int) -> None:
    seen[axis] += 1
    if seen[axis] > shape.dims[axis]:
        s.error(f"more than {shape.dims[axis]} values along dimension {axis} of {shape}", at)


def _word(s: Scanner, text: str, kind: ElementType, at: int, is_wrong: bool) -> str:
    word = _COMMENT.sub("", text) if "/" in text else text
    if ELEMENT[kind.kind].fullmatch(word) is None:
        shown = word if len(word) <= 40 else word[:40] + "..."
        s.error(f"expected a value of type {kind.name}, found {shown!r}", at)
    if is_wrong:
        s.error(f"{word} does not fit {kind.name}", at)
    return word


def printed_fault(s: Scanner, start: int, shape: ArrayShape) -> NoReturn:
    """Read a faulty literal element by element, as XLA prints it, and raise at the first wrong place."""
    kind = ELEMENT_TYPES[shape.dtype]
    s.pos = start

    def element() -> None:
        s.skip()
        m = s.match(ELEMENT[kind.kind])
        if m is None or (s.pos < len(s.text) and (s.text[s.pos].isalnum() or s.text[s.pos] in "._")):
            s.pos = s.pos if m is None else m.start()
            s.expected(f"a value of type {shape.dtype}")
        if not _fits([m[0]], kind):
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
