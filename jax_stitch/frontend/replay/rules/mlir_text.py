"""Attributes as MLIR writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def string(value: str) -> str:
    r"""Return a string with its escapes: MLIR knows those of bytes, as in ``\0A``, and none of JSON's ``\u000a``."""
    data = value.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data) + '"'


def integer(value: int) -> str:
    return f"{value} : i64"


def boolean(value: bool) -> str:
    return "true" if value else "false"


def integers(values: Iterable[int]) -> str:
    """Return a dense array of i64."""
    text = ", ".join(map(str, values))
    return f"array<i64: {text}>" if text else "array<i64>"


def booleans(values: Iterable[bool]) -> str:
    """Return a dense array of i1."""
    text = ", ".join(map(boolean, values))
    return f"array<i1: {text}>" if text else "array<i1>"


def pairs(values: Sequence[tuple[int, int]]) -> str:
    """Return an N x 2 tensor of i64, as padding is given."""
    text = ", ".join(f"[{low}, {high}]" for low, high in values)
    return f"dense<{f'[{text}]' if text else ''}> : tensor<{len(values)}x2xi64>"


def listed(values: Iterable[int]) -> str:
    """Return ``[1, 2]``, as the fields of a dimension-number attribute."""
    return f"[{', '.join(map(str, values))}]"


def fields(kind: str, values: Mapping[str, object]) -> str:
    """Return ``#stablehlo.kind<name = value, ...>``."""
    return f"#stablehlo.{kind}<{', '.join(f'{name} = {value}' for name, value in values.items())}>"
