"""Grammar of shapes and layouts."""

from __future__ import annotations

import re

from ..dtypes import ELEMENT_TYPES
from ..regex import regex
from ..shapes import ArrayShape, BufferShape, Layout, OpaqueShape, Shape, TokenShape, TupleShape
from .scan import COMMENT, DIGITS, MAX_DEPTH, SPACE, Scanner

# The whole text of an array shape. A brace behind the dimensions starts a layout only if a number or a colon follows
# (else it is a computation's body).
_COMMENTS = r"(?:(?:/\*(?s:.*?)\*/|//[^\r\n]*+|/)%s*+)*+"
_ARRAY = regex(
    rf"{SPACE}(([a-z]\w*+){SPACE}\[([^\]/]*+{_COMMENTS % '[^]/]'})\]"
    rf"({SPACE}\{{{SPACE}(?=[\d:])[^{{}}/]*+{_COMMENTS % '[^{}/]'}\}})?)",
    re.ASCII,
)
_DIMENSION = regex(rf"{SPACE}(<=)?{SPACE}(\d++|\?){SPACE}", re.ASCII)
_MINOR_TO_MAJOR = regex(rf"{SPACE}\{{{SPACE}((?:{DIGITS}(?:{SPACE},{SPACE}{DIGITS})*+)?){SPACE}", re.ASCII)
_NOTE = regex(
    rf"{SPACE}(?:(T){SPACE}((?:\((?:[\d,*\s]|{COMMENT})*+\){SPACE})++)"
    rf"|([LES]){SPACE}\({SPACE}({DIGITS}){SPACE}\)"
    rf"|((?:[DMP#*]|SC)(?:{SPACE}\([^()\s{{}}]*+\))++))",
    re.ASCII,
)
_COMMENT = regex(COMMENT)
_TILE = regex(r"\(([\d,*\s]*+)\)", re.ASCII)
_BUFFER = regex(rf"{SPACE}b\(", re.ASCII)
_INDEX_LIMIT = 2**63


def read_shape(s: Scanner) -> Shape:
    """Read any shape. Tuples are read with a stack of our own, so that no nesting exhausts Python's."""
    open_tuples: list[list[Shape]] = []
    while True:
        shape: Shape | None
        if s.accept("("):
            if len(open_tuples) == MAX_DEPTH:
                s.error(f"tuples are nested deeper than {MAX_DEPTH} levels", s.pos - 1)
            open_tuples.append([])
            if not s.accept(")"):
                continue
            shape = TupleShape(tuple(open_tuples.pop()))
        else:
            shape = _leaf(s)
        while open_tuples:
            open_tuples[-1].append(shape)
            if s.accept(","):
                break
            if not s.accept(")"):
                s.expected("',' or ')' in a tuple shape")
            shape = TupleShape(tuple(open_tuples.pop()))
        else:
            return shape


def _leaf(s: Scanner) -> Shape:
    m = _ARRAY.match(s.text, s.pos)
    if m is None:
        if s.match(_BUFFER):
            array = _leaf(s)
            if not isinstance(array, ArrayShape):
                s.error("a buffer shape must hold an array shape")
            s.expect(")", "after a buffer's shape")
            return BufferShape(array)
        pos = s.skip()
        word = re.compile(r"[A-Za-z]\w*").match(s.text, pos)
        if word and word[0] in ELEMENT_TYPES:
            s.pos = word.end()
            if s.at("["):
                s.error("these dimensions have no end: expected ']'", s.pos)
            s.expected(f"'[' and dimensions after {word[0]!r}")
        s.expected("a shape", ELEMENT_TYPES)
    known = s.shapes.get(m[1])
    if known is not None:
        s.pos = m.end()
        return known
    start = m.start(2)
    if m[2] in ("token", "opaque"):
        if _plain(m[3]).strip():
            s.error(f"a {m[2]} has no dimensions", m.start(3))
        s.pos = m.end() if m[4] is None else m.start(4)
        return TokenShape() if m[2] == "token" else OpaqueShape()
    if m[2] not in ELEMENT_TYPES:
        s.pos = start
        s.expected("an element type", ELEMENT_TYPES)
    dims, dynamic = _dimensions(s, m.start(3), m.end(3))
    layout = None
    s.pos = m.end()
    if m[4] is not None:
        s.pos = m.start(4)
        layout = read_layout(s)
        if sorted(layout.minor_to_major) != list(range(len(dims))):
            s.error(f"this layout is no permutation of the {len(dims)} dimensions", m.start(4))
    shape = ArrayShape(m[2], dims, layout, dynamic)
    s.shapes[m[1]] = shape
    return shape


def _dimensions(s: Scanner, start: int, end: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    text = s.text[start:end]
    if not _plain(text).strip():
        return (), ()
    dims: list[int] = []
    dynamic: list[bool] = []
    pos = start
    while True:
        m = _DIMENSION.match(s.text, pos, end)
        if m is None:
            s.error("expected a dimension: a number, a bound such as <=8, or ?", pos)
        size = -1 if m[2] == "?" else int(m[2]) if len(m[2]) < 20 else _INDEX_LIMIT
        if size >= _INDEX_LIMIT:
            s.error("this dimension does not fit 64 bits", m.start(2))
        dims.append(size)
        dynamic.append(m[1] is not None or size < 0)
        pos = m.end()
        if pos == end:
            return tuple(dims), tuple(dynamic) if any(dynamic) else ()
        if s.text[pos] != ",":
            s.error("expected ',' or ']' after a dimension", pos)
        pos += 1


def read_layout(s: Scanner) -> Layout:
    """Read ``{minor_to_major:notes}``."""
    m = s.match(_MINOR_TO_MAJOR)
    if m is None:
        s.expected("a layout such as {1,0}")
    minor_to_major = tuple(map(int, _plain(m[1]).split(","))) if m[1] else ()
    tiles: tuple[tuple[int | None, ...], ...] = ()
    numbers = {"L": 1, "E": 0, "S": 0}
    extra: list[str] = []
    if s.accept(":"):
        while note := s.match(_NOTE):
            if note[1]:
                tiles = tuple(_tile(s, t[1], note.start(2)) for t in _TILE.finditer(_plain(note[2])))
            elif note[3]:
                numbers[note[3]] = int(note[4])
            else:
                extra.append("".join(_plain(note[5]).split()))
    if not s.accept("}"):
        s.expected("'}' or a layout property: T(tile), L(n), E(bits), S(space)")
    return Layout(minor_to_major, tiles, numbers["L"], numbers["E"], numbers["S"], tuple(extra))


def _plain(text: str) -> str:
    """Return the text without comments."""
    return _COMMENT.sub(" ", text) if "/" in text else text


def _tile(s: Scanner, text: str, pos: int) -> tuple[int | None, ...]:
    try:
        return tuple(None if d.strip() == "*" else int(d) for d in text.split(",")) if text.strip() else ()
    except ValueError:
        s.error("expected numbers or '*' in a tile", pos)
