"""Grammar of attributes: what follows ``key=`` behind an instruction's operands."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..attributes import Alias, ConvDimensionNumbers, IotaTiles, Sharding, Window, WindowDim
from ..errors import nearest
from ..regex import regex
from ..shapes import Shape
from ..values import FrozenDict, Verbatim
from .scan import DIGITS, MAX_DEPTH, SPACE, Scanner
from .shape import read_shape

_COMMENT = regex(r"/\*(?s:.*?)\*/|//[^\r\n]*")
_INTS = regex(rf"{SPACE}\{{{SPACE}((?:-?{DIGITS}(?:{SPACE},{SPACE}-?{DIGITS})*+)?){SPACE}\}}", re.ASCII)
_BRACKETED = regex(rf"{SPACE}\[{SPACE}((?:-?{DIGITS}(?:{SPACE},{SPACE}-?{DIGITS})*+)?){SPACE}\]", re.ASCII)
_RANGE = regex(
    rf"{SPACE}\[{SPACE}(-?{DIGITS}){SPACE}:{SPACE}(-?{DIGITS}){SPACE}(?::{SPACE}(-?{DIGITS}){SPACE})?\]", re.ASCII
)
_PADDING = regex(
    rf"{SPACE}((-?{DIGITS}_-?{DIGITS}(?:_-?{DIGITS})?)(?:x-?{DIGITS}_-?{DIGITS}(?:_-?{DIGITS})?)*+)(?![\w.])", re.ASCII
)
_DXD = regex(rf"{SPACE}({DIGITS}(?:x{DIGITS})*+)(?![\w.])", re.ASCII)
_WINDOW_PAD = regex(rf"{SPACE}(-?{DIGITS}_-?{DIGITS}(?:x-?{DIGITS}_-?{DIGITS})*+)(?![\w.])", re.ASCII)
_DIM_LABELS = regex(rf"{SPACE}([0-9bf?]{{2,}}+)_([0-9io?]{{2,}}+)->([0-9bf?]{{2,}}+)(?!\w)", re.ASCII)
_NUMBER = regex(rf"{SPACE}(-?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?|-?inf|-?nan)(?![\w.])", re.ASCII)
_ENUM = regex(rf"{SPACE}([A-Za-z_][\w.\-]*+|\d[\w.\-]*+)", re.ASCII)
_LIST = rf"{SPACE}(-?{DIGITS}(?:{SPACE},{SPACE}-?{DIGITS})*+){SPACE}"
_ORDER = rf"{SPACE}\[{_LIST}\](?:{SPACE}T\({_LIST}\))?"
_IOTA = regex(rf"{SPACE}\[{_LIST}\]{SPACE}<={_ORDER}", re.ASCII)
_TRANSPOSED = regex(_ORDER, re.ASCII)

Reader = Callable[[Scanner], Any]


def _numbers(text: str) -> tuple[int, ...]:
    """Read integers between commas, comments among them."""
    if "/" in text:
        text = _COMMENT.sub("", text)
    return tuple(map(int, text.split(","))) if text else ()


def read_ints(s: Scanner) -> tuple[int, ...]:
    """Read ``{1,2}``."""
    m = s.match(_INTS)
    if m is None:
        s.expected("integers in braces, such as {0,1}")
    return _numbers(m[1])


def read_list(s: Scanner, item: Reader, what: str, last_comma: bool = False) -> tuple[Any, ...]:
    """Read ``{item, item, ...}``; with ``last_comma`` XLA lets one stand behind the last item."""
    s.expect("{", f"to begin {what}")
    items = []
    if not s.accept("}"):
        items.append(item(s))
        while s.accept(","):
            if last_comma and not s.strict and s.at("}"):
                break
            items.append(item(s))
        s.expect("}", f"or ',' in {what}")
    return tuple(items)


def read_bool(s: Scanner) -> bool:
    for word, value in (("true", True), ("false", False), ("1", True), ("0", False)):
        if s.accept(word):
            return value
    s.expected("true or false")


def read_bools(s: Scanner) -> tuple[bool, ...] | bool:
    return read_list(s, read_bool, "a list of true and false") if s.at("{") else read_bool(s)


def read_float(s: Scanner) -> float:
    m = s.match(_NUMBER)
    return float(m[1]) if m else s.expected("a number")


def read_enum(s: Scanner) -> str:
    m = s.match(_ENUM)
    return m[1] if m else s.expected("a word")


def read_word_of(*known: str) -> Reader:
    """Return a reader of one of a few words: the lists are as old as HLO, and complete."""

    def read(s: Scanner) -> str:
        m = s.match(_ENUM)
        if m is None or m[1] not in known:
            s.pos = s.pos if m is None else m.start(1)
            s.expected(f"one of {', '.join(known)}", known)
        return m[1]

    return read


def read_slices(s: Scanner) -> tuple[tuple[int, int, int], ...]:
    def one(s: Scanner) -> tuple[int, int, int]:
        m = s.match(_RANGE)
        return (int(m[1]), int(m[2]), int(m[3] or 1)) if m else s.expected("a range such as [0:8] or [0:8:2]")

    return read_list(s, one, "slice ranges")


def read_padding(s: Scanner) -> tuple[tuple[int, int, int], ...]:
    if not (m := s.match(_PADDING)):
        s.expected("padding such as 0_1x2_3_1 (low_high_interior for each dimension)")
    dims = [tuple(map(int, d.split("_"))) for d in re.split("x", m[1])]
    return tuple((d[0], d[1], d[2] if len(d) > 2 else 0) for d in dims)


_WINDOW_KEYS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


def read_window(s: Scanner) -> Window:
    s.expect("{", "to begin a window")
    fields: dict[str, list[str]] = {}
    start = s.pos
    while not s.accept("}"):
        at = s.skip()
        key = s.key("size=, stride=, pad=, lhs_dilate=, rhs_dilate=, rhs_reversal= or '}' in a window")
        if key not in _WINDOW_KEYS:
            s.error(f"a window has no {key!r}", at, nearest(key, _WINDOW_KEYS))
        if key in fields:
            s.error(f"{key!r} is given twice", at)
        m = s.match(_WINDOW_PAD if key == "pad" else _DXD)
        if m is None:
            s.expected("padding such as 0_1x2_3" if key == "pad" else "numbers such as 3x3")
        fields[key] = m[1].split("x")
        if len(fields[key]) != len(fields.get("size", fields[key])):
            s.error(f"{key!r} and 'size' differ in their number of dimensions", m.start(1))
    size = fields.get("size", [])
    if any(len(f) != len(size) for f in fields.values()):
        s.error("the parts of this window differ in their number of dimensions", start)

    def number(key: str, i: int, default: int) -> int:
        return int(fields[key][i]) if key in fields else default

    dims = []
    for i, extent in enumerate(size):
        low, high = map(int, fields["pad"][i].split("_")) if "pad" in fields else (0, 0)
        reversal = number("rhs_reversal", i, 0) == 1
        dilations = number("rhs_dilate", i, 1), number("lhs_dilate", i, 1)
        dims.append(WindowDim(int(extent), number("stride", i, 1), low, high, *dilations, reversal))
    return Window(tuple(dims))


def read_dim_labels(s: Scanner) -> ConvDimensionNumbers:
    pos = s.skip()
    if not (m := s.match(_DIM_LABELS)):
        s.expected("dimension labels such as b01f_01io->b01f")

    def part(labels: str, first: str, second: str) -> tuple[int, int, tuple[int, ...]]:
        named = labels.replace("?", "")
        spatial = sorted(c for c in named if c.isdigit())
        digits = [str(i) for i in range(len(spatial))]
        if len(set(named)) != len(named) or spatial != digits or first not in named or second not in named:
            s.error(f"{labels!r} must have {first!r}, {second!r} and the digits from 0 each once", pos)
        return labels.index(first), labels.index(second), tuple(labels.index(d) for d in digits)

    source, kernel, result = part(m[1], "b", "f"), part(m[2], "i", "o"), part(m[3], "b", "f")
    if not len(source[2]) == len(kernel[2]) == len(result[2]):
        s.error("input, kernel and output differ in their number of spatial dimensions", pos)
    return ConvDimensionNumbers(*source, *kernel, *result, len(m[1]), len(m[2]), len(m[3]))


def read_iota(s: Scanner) -> IotaTiles | None:
    """Read ``[2,4]<=[4,2]T(1,0)``, if that comes next."""
    pos = s.skip()
    if not (m := s.match(_IOTA)):
        return None
    return IotaTiles(_numbers(m[1]), *_order(s, m[2], m[3], pos))


def read_order(s: Scanner) -> IotaTiles | tuple[int, ...]:
    """Read ``[4,2]T(1,0)``, or numbers listed: 0,2,1,3."""
    pos = s.skip()
    if m := s.match(_TRANSPOSED):
        reshape, permutation = _order(s, m[1], m[2], pos)
        return IotaTiles(tuple(reshape[d] for d in permutation), reshape, permutation)
    return _device_numbers(s)


def _device_numbers(s: Scanner) -> tuple[int, ...]:
    numbers = [s.integer("a device number")]
    while s.accept(","):
        numbers.append(s.integer("a device number"))
    return tuple(numbers)


def _order(s: Scanner, sizes: str, order: str | None, pos: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    reshape = _numbers(sizes)
    if order is None and len(reshape) > 1:
        s.error(f"[{','.join(map(str, reshape))}] needs T(...), the order of its dimensions", pos)
    permutation = _numbers(order) if order else (0,)
    if sorted(permutation) != list(range(len(reshape))):
        s.error("T(...) is no permutation of the dimensions before it", pos)
    return reshape, permutation


def read_sharding(s: Scanner, depth: int = 0) -> Sharding | Verbatim:
    """Return a sharding, or its text where it is written in a notation not known here (by mesh and axes)."""
    start = s.skip()
    if not s.accept("{"):
        return s.verbatim()
    if s.at("{") or s.at("}"):
        if depth > MAX_DEPTH:
            s.error(f"shardings are nested deeper than {MAX_DEPTH} levels", start)
        s.pos = start
        elements = read_list(s, lambda s: read_sharding(s, depth + 1), "a list of shardings")
        if any(isinstance(e, Verbatim) for e in elements):
            s.pos = start
            return s.verbatim()
        return Sharding("tuple", elements=elements)
    kind = ""
    fields: dict[str, Any] = {}
    while not s.accept("}"):
        word = re.compile(r"[a-z_]+", re.ASCII).match(s.text, s.skip())
        text = word[0] if word else ""
        if text in ("replicated", "maximal", "manual", "unreduced", "unknown"):
            s.pos += len(text)
            kind = text
        elif text == "device":
            s.key("device=")
            fields["devices"] = (s.integer("a device number"),)
        elif text == "devices":
            s.key("devices=")
            kind = "tiled"
            iota = read_iota(s)
            if iota is not None:
                fields["tile_dims"], fields["devices"] = iota.dims, iota
            else:
                if not (m := s.match(_BRACKETED)):
                    s.expected("tile dimensions such as [2,1]")
                fields["tile_dims"] = _numbers(m[1])
                fields["devices"] = _device_numbers(s)
        elif text == "last_tile_dim_replicate":
            s.pos += len(text)
            fields["replicate_last"] = True
        elif text == "last_tile_dims":
            s.key("last_tile_dims=")
            fields["last_tile_dims"] = read_list(s, read_enum, "last_tile_dims")
        elif text in ("shard_as", "shard_like"):
            s.pos += len(text)
            fields["group"] = f"{text} {s.integer()}"
        elif text == "metadata":
            s.key("metadata=")
            fields["metadata"] = _braced(s)
        else:
            s.pos = start
            return s.verbatim()
    if not kind:
        s.pos = start
        return s.verbatim()
    if kind == "maximal" and "devices" not in fields:
        s.error("a maximal sharding names its device: {maximal device=0}", start)
    return Sharding(kind, **fields)


def _braced(s: Scanner) -> str:
    """Return a value in braces, verbatim, and nothing behind it."""
    start = s.skip()
    s.expect("{")
    while not s.accept("}"):
        s.verbatim()
        s.accept(",")
    return s.text[start : s.pos]


def _alias(s: Scanner) -> Alias:
    output = read_ints(s)
    s.expect(":", "between an output index and the input it aliases")
    s.expect("(", "to begin (parameter, index)")
    parameter = s.integer("a parameter number")
    s.expect(",", "after the parameter number")
    index = read_ints(s)
    kind = ""
    if s.accept(","):
        pos = s.skip()
        kind = s.word("may-alias or must-alias")
        if kind not in ("may-alias", "must-alias"):
            s.pos = pos
            s.expected("may-alias or must-alias", ("may-alias", "must-alias"))
    s.expect(")", "after an alias")
    return Alias(output, parameter, index, kind)


def read_aliases(s: Scanner) -> tuple[Alias, ...]:
    return read_list(s, _alias, "a list of aliases", last_comma=True)


def read_computation(s: Scanner) -> str:
    """Return the name of a computation: of one before this, or of the one that follows here in braces."""
    start = s.skip()
    if s.at("{"):
        return s.inline_computation(s)
    name = s.name("the name of a computation")
    if name not in s.computations:
        s.error(f"no computation {name!r} before this one", start, nearest(name, s.computations))
    return name


def read_computations(s: Scanner) -> tuple[str, ...]:
    return read_list(s, read_computation, "a list of computations")


def read_frontend_attributes(s: Scanner) -> FrozenDict[str, str | Verbatim]:
    """Read ``{key="text",other={verbatim}}``."""

    def one(s: Scanner) -> tuple[str, str | Verbatim]:
        key = s.key("key=value")
        if s.at('"') or s.at("'"):
            return key, s.string()
        return key, Verbatim(_braced(s)) if s.at("{") else s.verbatim()

    return FrozenDict(read_list(s, one, "frontend attributes"))


_METADATA = regex(
    r'[ ,]*+(?:(op_name|scheduling_name|op_type|source_file|deduplicated_name)="([^"\\\n]*+)"'
    r"|(source_line|source_end_line|source_column|source_end_column|stack_frame_id)=(\d{1,9}+)(?=[ ,}]))",
    re.ASCII,
)


def read_metadata(s: Scanner) -> FrozenDict[str, Any]:
    """Read ``{op_name="..." source_file="..." source_line=3}``."""
    s.expect("{", "to begin metadata")
    metadata: dict[str, Any] = {}
    text, pos = s.text, s.pos
    while (m := _METADATA.match(text, pos)) and (m[1] or m[3]) not in metadata:
        if m[1]:
            metadata[m[1]] = m[2]
        else:
            metadata[m[3]] = int(m[4])
        pos = m.end()
    s.pos = pos
    while not s.accept("}"):
        s.accept(",")
        at = s.skip()
        key = s.key("key=value or '}' in metadata")
        if key in metadata:
            s.error(f"{key!r} is given twice", at)
        if s.at('"') or s.at("'"):
            metadata[key] = s.string()
        elif s.at("{"):
            m = s.match(_INTS)
            metadata[key] = _numbers(m[1]) if m else Verbatim(_braced(s))
        elif s.at("true") or s.at("false"):
            metadata[key] = read_bool(s)
        else:
            metadata[key] = s.integer("a string, an integer or a list")
    return FrozenDict(metadata)


def read_shapes(s: Scanner) -> tuple[Shape, ...]:
    return read_list(s, read_shape, "a list of shapes")


def read_names(s: Scanner) -> tuple[str, ...]:
    return read_list(s, lambda s: s.name("a name"), "a list of names")


def read_enums(s: Scanner) -> tuple[str, ...]:
    return read_list(s, read_enum, "a list of words")


def read_int_lists(s: Scanner) -> tuple[tuple[int, ...], ...]:
    return read_list(s, read_ints, "a list of lists of integers")


def read_int(s: Scanner) -> int:
    return s.integer()


def read_string(s: Scanner) -> str:
    return s.string()


def read_verbatim(s: Scanner) -> Verbatim:
    return s.verbatim()


def read_slice_sizes(s: Scanner) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
    """Return one list for a gather, a list of lists for a collective-permute that moves slices."""
    m = s.match(_INTS)
    return _numbers(m[1]) if m else read_int_lists(s)
