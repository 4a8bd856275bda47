"""What a file, or a string, holds: HLO text, StableHLO text or bytecode, or a serialized proto.

Told by the content: people name their dumps as they like.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import hlo_parser
from jax_stitch.frontend.capture.errors import HloFileError
from jax_stitch.util.formatting import shorten


class Kind(Enum):
    """Forms of a program."""

    HLO_TEXT = "HLO text"
    MLIR = "StableHLO"
    PROTO = "HLO proto"


@dataclass(frozen=True, slots=True)
class Content:
    """What was given: ``data`` of a kind, and ``where`` as messages call it."""

    kind: Kind
    data: bytes
    where: str

    @property
    def text(self) -> str:
        """Return the data of a text."""
        return self.data.decode("utf-8", "surrogateescape")


_BYTECODE = b"ML\xefR"
_OTHERS = {
    b"\x1f\x8b": "compressed by gzip: unpack it first",
    b"PK\x03\x04": "a zip archive: unpack it and name one file of it",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it first",
    b"\xff\xfe": "UTF-16: save it as UTF-8",
    b"\xfe\xff": "UTF-16: save it as UTF-8",
    b"\x7fELF": "a program or a library: give the HLO that it was made from",
    b"\x89PNG": "a picture: give the HLO itself",
}
"""What files begin with that are none of ours."""

_COMMENTS = r"(?:\s|//[^\n]*|/\*(?s:.*?)\*/)*"
_IS_HLO = re.compile(rf"{_COMMENTS}(?:HloModule\b|ENTRY\b|%?[A-Za-z_][\w.\-]*\s*(?:\([^\n]*->[^\n]*)?\{{)")
_IS_MLIR = re.compile(rf'{_COMMENTS}(?:#[\w.]+\s*=|"?builtin\.module\b|module\b|"?func\.func\b|!\w+\s*=)')
_HAS_HEADER = re.compile(r"^[ \t]*HloModule\b", re.MULTILINE)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")

WHAT = "HLO text ('HloModule ...'), a serialized HLO proto, or StableHLO (text, 'module @...', or bytecode)"


def content_of(source: str | os.PathLike[str] | bytes) -> Content:
    """Return what ``source`` holds: a path, the text itself (it has a line break or a brace), or data. Raise
    HloFileError.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _recognised(bytes(source), "the data")
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return _recognised(source.encode("utf-8", "surrogateescape"), "the text")
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"a program is a path, HLO text or bytes, not {type(source).__name__}")
    return _recognised(_read(Path(source)), str(source))


def _read(path: Path) -> bytes:
    if not str(path) or str(path) == ".":
        raise HloFileError(f"no file is named: give the path of {WHAT}")
    try:
        return path.read_bytes()
    except IsADirectoryError:
        inside = sorted(p.name for p in path.iterdir() if p.is_file())[:3]
        such = f", such as {', '.join(inside)}" if inside else ""
        raise HloFileError(f"{path} is a folder: name one file in it{such}") from None
    except FileNotFoundError:
        raise HloFileError(f"there is no file {path}: give the path of {WHAT}") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise HloFileError(f"{path} cannot be read ({reason}): give a file that can") from None


def _recognised(data: bytes, where: str) -> Content:
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise HloFileError(f"{where} is empty: give {WHAT}")
    if data.startswith(_BYTECODE):
        return Content(Kind.MLIR, data, where)
    for start, what in _OTHERS.items():
        if data.startswith(start):
            raise HloFileError(f"{where} is {what}")
    if _CONTROL.search(data):
        return Content(Kind.PROTO, data, where)
    text = data.decode("utf-8", "surrogateescape")
    if _HAS_HEADER.search(text):
        return Content(Kind.HLO_TEXT, data, where)
    if _IS_MLIR.match(text):
        return Content(Kind.MLIR, data, where)
    if _IS_HLO.match(text) or _is_one_instruction(text):
        return Content(Kind.HLO_TEXT, data, where)
    first = shorten(next(line.strip() for line in text.splitlines() if line.strip()), 60)
    raise HloFileError(f"{where} is neither HLO nor StableHLO; it begins {first!r}\ngive {WHAT}")


def _is_one_instruction(text: str) -> bool:
    """Return whether it is a single one, as ``f32[2] add(f32[2] x, f32[2] y)``: XLA makes parameters of what it
    reads.
    """
    if "(" not in text:
        return False
    try:
        hlo_parser.parse(text)
    except hlo_parser.HloParseError:
        return False
    return True
