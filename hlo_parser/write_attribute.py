"""Values of attributes as text, written the way XLA writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .attributes import BackendConfig
from .values import Verbatim

Writer = Callable[[Any], str]

_ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"})


def quote(text: str) -> str:
    """Return a string in quotes, escaped as C does; bytes outside ASCII in octal."""
    escaped = text.translate(_ESCAPES)
    if escaped.isascii() and escaped.isprintable():
        return f'"{escaped}"'
    raw = escaped.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(b) if 32 <= b < 127 else f"\\{b:03o}" for b in raw) + '"'


def write_ints(values: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def write_int_lists(values: tuple[tuple[int, ...], ...]) -> str:
    return "{" + ",".join(map(write_ints, values)) + "}"


def write_slice_sizes(values: tuple[Any, ...]) -> str:
    return write_int_lists(values) if values and isinstance(values[0], tuple) else write_ints(values)


def write_bool(value: bool) -> str:
    return "true" if value else "false"


def write_bools(values: tuple[bool, ...] | bool) -> str:
    return write_bool(values) if isinstance(values, bool) else "{" + ",".join(map(write_bool, values)) + "}"


def write_float(value: float) -> str:
    return repr(value).removesuffix(".0")


def write_enums(values: tuple[str, ...]) -> str:
    return "{" + ",".join(values) + "}"


def write_name(name: str) -> str:
    return f"%{name}"


def write_names(names: tuple[str, ...]) -> str:
    return "{" + ", ".join(map(write_name, names)) + "}"


def write_slices(ranges: tuple[tuple[int, int, int], ...]) -> str:
    # XLA writes the steps of all dimensions or of none.
    steps = any(r[2] != 1 for r in ranges)
    return "{" + ", ".join(f"[{a}:{b}:{step}]" if steps else f"[{a}:{b}]" for a, b, step in ranges) + "}"


def write_padding(dims: tuple[tuple[int, int, int], ...]) -> str:
    # XLA writes the interior for all dimensions or for none.
    interior = any(d[2] for d in dims)
    return "x".join(f"{low}_{high}_{inner}" if interior else f"{low}_{high}" for low, high, inner in dims)


def write_items(values: tuple[object, ...]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def write_spaced_items(values: tuple[object, ...]) -> str:
    return "{ " + ", ".join(map(str, values)) + " }"


def write_backend_config(config: BackendConfig | str) -> str:
    if isinstance(config, BackendConfig) and not config.quoted:
        return config.text
    return quote(config.text if isinstance(config, BackendConfig) else config)


def write_frontend_attributes(values: Mapping[str, str | Verbatim]) -> str:
    texts = (f"{key}={value if isinstance(value, Verbatim) else quote(value)}" for key, value in values.items())
    return "{" + ",".join(texts) + "}"


def write_metadata(values: Mapping[str, Any]) -> str:
    def one(value: Any) -> str:
        if isinstance(value, str):
            return quote(value)
        return (
            write_ints(value)
            if isinstance(value, tuple)
            else write_bools(value)
            if value is True or value is False
            else str(value)
        )

    return "{" + " ".join(f"{key}={one(value)}" for key, value in values.items()) + "}"
