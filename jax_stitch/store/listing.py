"""What is in the cache, for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jax_stitch.store.entries import DAMAGED
from jax_stitch.store.eviction import files, limit, remove
from jax_stitch.store.location import KINDS, LIBRARY, folder


@dataclass(frozen=True, slots=True)
class Kind:
    """The entries of one kind."""

    kind: str
    files: int
    bytes: int
    damaged: int
    """How many of the files were found damaged and set aside."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The cache at one moment."""

    folder: Path
    limit: int
    """Bytes."""
    kinds: tuple[Kind, ...]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(kind.bytes for kind in self.kinds)


def contents() -> Contents:
    """What is in the cache now."""
    root = folder()
    entries = [(path, status.st_size) for path, status in files(root, (*KINDS, LIBRARY))]
    kinds = []
    for name in (*KINDS, LIBRARY):
        own = [(path.name, size) for path, size in entries if path.parent.name == name]
        damaged = sum(file.endswith(DAMAGED) for file, _ in own)
        kinds.append(Kind(name, len(own), sum(size for _, size in own), damaged))
    return Contents(root, limit(), tuple(kinds))


def clear() -> Contents:
    """Empties the cache and returns what was in it. Processes that run keep what they have loaded."""
    before = contents()
    for path, _ in files(before.folder, (*KINDS, LIBRARY)):
        remove(path)
    return before
