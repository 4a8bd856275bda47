"""The texts of a program's kernels, each of them once."""

from __future__ import annotations

from collections.abc import Hashable

from jax_stitch.emit.kernel import structure
from jax_stitch.emit.source import KernelSource


class Sources:
    """The sources seen so far. Texts are compared, which takes going through them, only where kernels agree in all else
    that they could differ in: most do not.
    """

    def __init__(self) -> None:
        self._alone: dict[Hashable, KernelSource] = {}
        """The first source of each kind, by its buffers and launch."""
        self._by_text: dict[Hashable, dict[Hashable, KernelSource]] = {}
        """The sources of the kinds that there are several of."""
        self._seen: dict[int, tuple[KernelSource, KernelSource]] = {}
        """The same source again, by its identity: kernels share theirs."""

    def first(self, source: KernelSource) -> KernelSource:
        """Return the first source that can stand in for this one, itself perhaps."""
        if (seen := self._seen.get(id(source))) is not None:
            return seen[1]
        first = self._first(source)
        self._seen[id(source)] = source, first
        return first

    def _first(self, source: KernelSource) -> KernelSource:
        kind = source.kind
        alone = self._alone.setdefault(kind, source)
        if alone is source:
            return source
        known = self._by_text.setdefault(kind, {})
        if not known:
            known[structure(alone)] = alone
        return known.setdefault(structure(source), source)
