"""Messages between this process and a child: a JSON header and raw bytes, each with its length in front."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

_LENGTHS = struct.Struct(">IQ")


def encode(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """Return one message as bytes. The header holds what JSON can."""
    text = json.dumps(header).encode()
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


def decode(read: Callable[[int], bytes]) -> tuple[dict[str, Any], bytes]:
    """Return the next message, by ``read``, which returns exactly as many bytes as it is asked for or raises
    ``EOFError``.
    """
    header_size, payload_size = _LENGTHS.unpack(read(_LENGTHS.size))
    header = json.loads(read(header_size))
    return header, read(payload_size)
