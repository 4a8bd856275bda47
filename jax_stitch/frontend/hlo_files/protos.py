"""The HLO module inside a serialized proto: by itself, or wrapped as XLA's dumps and snapshots wrap it."""

from __future__ import annotations

from collections.abc import Iterator

_MODULE = 1
"""The field that holds what is wrapped, in all of XLA's wrappers: HloProto, HloModuleProtoWithConfig, HloSnapshot."""

_DEEPEST = 3


def module_bytes(data: bytes) -> bytes | None:
    """Return the serialized ``HloModuleProto`` in ``data``; None where there is none."""
    for _ in range(_DEEPEST):
        fields = _fields(data)
        if fields is None:
            return None
        if _is_module(fields):
            return data
        inner = fields.get(_MODULE)
        if not inner:
            return None
        data = inner[0]
    return None


def _is_module(fields: dict[int, list[bytes]]) -> bool:
    """Return whether these are the fields of a module: 1 and 2 name it and its entry, 3 are the computations."""
    return _is_name(fields.get(1, [b""])[0]) and _is_name(fields.get(2, [b""])[0]) and bool(fields.get(3))


def _is_name(value: bytes) -> bool:
    return value.isascii() and value.decode("ascii", "replace").isprintable()


def _fields(data: bytes) -> dict[int, list[bytes]] | None:
    """Return the fields of a message that are strings or messages, by number; None where it is no message."""
    by_number: dict[int, list[bytes]] = {}
    try:
        for number, value in _parts(data):
            by_number.setdefault(number, []).append(value)
    except (IndexError, ValueError):
        return None
    return by_number


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("no field has the number 0")
        if wire == 0:
            _, at = _varint(data, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("it ends within a field")
            yield number, data[at : at + size]
            at += size
        else:
            raise ValueError(f"there is no wire type {wire}")
    if at > len(data):
        raise ValueError("it ends within a field")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
