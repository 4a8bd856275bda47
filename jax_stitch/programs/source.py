"""A hash of this package's own files: in a checkout they change without a new version."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

_PACKAGES = ("hlo_parser", "jax_stitch")
_SOURCES = (".py", ".h", ".cc", ".json", ".toml", ".txtpb")


@functools.cache
def source() -> str:
    """The hash.

    Every process begins with it, before its first call: so by plain system calls, half of what ``pathlib`` takes.
    """
    digest = hashlib.sha256()
    root = str(Path(__file__).resolve().parents[2])
    for path in sorted(path for package in _PACKAGES for path in _files(os.path.join(root, package))):
        content = _content(path)
        digest.update(f"{path[len(root) + 1 :]}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SOURCES):
                yield entry.path
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _files(entry.path)


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))
    finally:
        os.close(descriptor)
