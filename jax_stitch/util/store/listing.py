"""The entries of the cache, to be listed and cleared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jax_stitch.util.store.entries import DAMAGED
from jax_stitch.util.store.eviction import files, limit, remove
from jax_stitch.util.store.location import KINDS, LIBRARY, folder


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
        """Return the size of all files."""
        return sum(kind.bytes for kind in self.kinds)


def contents() -> Contents:
    """Return what is in the cache now."""
    root = folder()
    entries = [(path, status.st_size) for path, status in files(root, (*KINDS, LIBRARY))]
    kinds = []
    for name in (*KINDS, LIBRARY):
        own = [(path.name, size) for path, size in entries if path.parent.name == name]
        damaged = sum(file.endswith(DAMAGED) for file, _ in own)
        kinds.append(Kind(name, len(own), sum(size for _, size in own), damaged))
    return Contents(root, limit(), tuple(kinds))


def clear(kinds: Sequence[str] = (*KINDS, LIBRARY)) -> Contents:
    """Empty the cache of these kinds of entries and return all that was in it. Processes that run keep what they have
    loaded.
    """
    before = contents()
    for path, _ in files(before.folder, kinds):
        remove(path)
    return before
