"""Grammar of ``backend_config``: a string, JSON or an MLIR attribute dictionary."""

from __future__ import annotations

import functools
import json
import re
import struct
from typing import Any

from ..attributes import BackendConfig, MlirArray
from ..regex import regex
from ..values import FrozenDict, Verbatim
from .scan import MAX_DEPTH, SPACE, Scanner, unescape

_PIECES = regex(r"""[^{}"]++|"(?:[^"\\]|\\.)*+"|([{}])""", re.DOTALL)
_KEY = regex(rf"""{SPACE}(?:([A-Za-z_][\w.$\-]*+)|"([^"\\]*+(?:\\.[^"\\]*+)*+)")""", re.ASCII)
_NUMBER = regex(
    rf"{SPACE}(0x[0-9a-fA-F]++|-?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?)(?:{SPACE}:{SPACE}([a-z]\w*+))?", re.ASCII
)
_ARRAY = regex(rf"{SPACE}array<([a-z]\w*+)(?::([^<>]*+))?>", re.ASCII)
_DENSE = regex(rf"{SPACE}dense<([^<>]*+)>{SPACE}:{SPACE}(?:tensor|vector)<((?:\d++x)*+)([a-z]\w*+)>", re.ASCII)
_OTHER = regex(r"""->|[<>()\[\]{},]|"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^<>()\[\]{},"\-]++|-""", re.ASCII)
_INTEGERS = {f"{sign}{bits}" for sign in ("i", "si", "ui") for bits in (8, 16, 32, 64)} | {"index"}
_FLOATS = {"f16": "e", "f32": "f", "f64": "d", "bf16": "f"}


def read_backend_config(s: Scanner) -> BackendConfig | str:
    """Return the config: a mapping where it is a dictionary, else the string."""
    quoted = s.at('"') or s.at("'")
    text = s.string() if quoted else _braces(s)
    if not text.startswith("{"):
        return text
    try:
        values = json.loads(text, parse_constant=float)
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, dict) and (values or text.strip() != "{}" or quoted):
        try:
            return BackendConfig(_freeze(values), text, "json", quoted)
        except RecursionError:
            return text if quoted else s.error(f"this config is nested deeper than {MAX_DEPTH} levels")
    try:
        return BackendConfig(read_mlir_dictionary(text), text, "mlir", quoted)
    except ValueError:
        return text if quoted else BackendConfig({}, text, "other", quoted)


def _braces(s: Scanner) -> str:
    """Read the text from ``{`` to the matching ``}``, strings skipped."""
    start = s.skip()
    if not s.at("{"):
        s.expected("a string or a dictionary in braces")
    depth = 0
    while m := s.match(_PIECES):
        if m[1]:
            depth += 1 if m[1] == "{" else -1
            if depth == 0:
                return s.text[start : s.pos]
    s.error("this brace is never closed", start)


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return FrozenDict({k: _freeze(v) for k, v in value.items()})
    return tuple(map(_freeze, value)) if isinstance(value, list) else value


def read_mlir_dictionary(text: str) -> FrozenDict[str, Any]:
    """Return an MLIR attribute dictionary, ``{key = value, ...}``. Raises ValueError where it is none."""
    s = Scanner(text)
    values = _dictionary(s, 0)
    if s.skip() != len(text):
        s.expected("the end of the dictionary")
    return values


def _dictionary(s: Scanner, depth: int) -> FrozenDict[str, Any]:
    s.expect("{")
    values: dict[str, Any] = {}
    while not s.accept("}"):
        if values:
            s.expect(",")
        m = s.match(_KEY)
        if m is None:
            s.expected("a key")
        # A key alone is a unit attribute.
        values[m[1] or unescape(m[2])] = _value(s, depth + 1) if s.accept("=") else True
    return FrozenDict(values)


def _value(s: Scanner, depth: int) -> Any:
    if depth > MAX_DEPTH:
        s.error(f"nested deeper than {MAX_DEPTH} levels")
    if s.at("{"):
        return _dictionary(s, depth)
    if s.at('"'):
        return s.string()
    if s.accept("["):
        items: list[Any] = []
        while not s.accept("]"):
            if items:
                s.expect(",")
            items.append(_value(s, depth + 1))
        return tuple(items)
    for word, value in (("true", True), ("false", False), ("unit", True)):
        if re.compile(rf"{word}\b").match(s.text, s.skip()):
            s.pos += len(word)
            return value
    start = s.skip()
    if m := s.match(_NUMBER):
        try:
            return _number(m[1], m[2] or ("f64" if "." in m[1] else "i64"))
        except (KeyError, OverflowError, ValueError):
            s.pos = start
            return _other(s)
    try:
        if m := s.match(_ARRAY):
            return MlirArray(m[1], tuple(_number(v.strip(), m[1]) for v in m[2].split(",")) if m[2] else ())
        if m := s.match(_DENSE):
            words = [w.strip() for w in m[1].replace("[", " ").replace("]", " ").split(",") if w.strip()]
            dims = tuple(int(d) for d in m[2].split("x") if d)
            return MlirArray(m[3], tuple(_number(w, m[3]) for w in words), dims)
    except (KeyError, OverflowError, ValueError):
        s.pos = start
    return _other(s)


def _other(s: Scanner) -> Verbatim:
    """Return an attribute of another dialect: up to the next comma or closing bracket outside brackets, angles among
    them.
    """
    start, depth = s.skip(), 0
    while (m := _OTHER.match(s.text, s.pos)) and (depth or m[0] not in (",", "}", "]")):
        depth += (m[0] in ("<", "(", "[", "{")) - (m[0] in (">", ")", "]", "}"))
        s.pos = m.end()
    text = s.text[start : s.pos].rstrip()
    if not text:
        s.expected("a value")
    return Verbatim(text)


@functools.cache
def _kind(type_name: str) -> Any:
    """Return the numpy scalar of an MLIR type, or Python's where numpy is not installed. Raises KeyError."""
    if type_name not in _INTEGERS | _FLOATS.keys() | {"i1"}:
        raise KeyError(type_name)
    try:
        import ml_dtypes
        import numpy as np
    except ImportError:
        return bool if type_name == "i1" else float if type_name in _FLOATS else int
    if type_name in ("i1", "bf16", "index"):
        return {"i1": np.bool_, "bf16": ml_dtypes.bfloat16, "index": np.int64}[type_name]
    stem = {"i": "int", "s": "int", "u": "uint", "f": "float"}[type_name[0]]
    return getattr(np, stem + type_name.lstrip("isuf"))


def _number(text: str, type_name: str) -> Any:
    """Return a number of an MLIR type. Floats may be written as the bits in hexadecimal."""
    kind = _kind(type_name)
    if text in ("true", "false"):
        return kind(text == "true")
    if type_name in _FLOATS:
        if text.startswith("0x"):
            bits = int(text, 16) << (16 if type_name == "bf16" else 0)
            letter = _FLOATS[type_name]
            return kind(struct.unpack(f"<{letter}", bits.to_bytes(struct.calcsize(letter), "little"))[0])
        return kind(float(text))
    return kind(int(text, 0))
