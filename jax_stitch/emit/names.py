"""C++ identifiers from HLO names."""

from __future__ import annotations

import re

from jax_stitch.graph.model import Graph, Node
from jax_stitch.indexing.maps import Index

RESERVED = frozenset(
    """alignas and asm auto block bool break case catch char class const continue default delete do double else enum explicit
    export extern false float for friend goto if index inline int j long mutable namespace new not operator or private protected public q
    register return row shared short signed sizeof st static struct switch template this throw true try typedef union unsigned using
    virtual void volatile while xor lane_ r_ main exp log tanh sin cos abs max min floor ceil pow sqrt""".split(),
)


def identifier(text: str) -> str:
    """``text`` as a C++ identifier."""
    found = re.sub(r"\W+", "_", text).strip("_") or "value"
    return f"v_{found}" if found[0].isdigit() or found in RESERVED else found


class Names:
    """Unique identifiers of one kernel."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._taken: dict[str, int] = {}
        self._of: dict[int, str] = {}
        self._kept: dict[tuple[int, Index], str] = {}

    def fresh(self, base: str) -> str:
        """An identifier not given before, like ``base``."""
        stem = identifier(base)
        count = self._taken.get(stem, 0)
        self._taken[stem] = count + 1
        if not count:
            return stem
        return self.fresh(f"{stem}_{count}")

    def of(self, node: Node) -> str:
        """The one identifier of a node's buffer or storage."""
        if node.id not in self._of:
            self._of[node.id] = self.fresh(node.name or node.op)
        return self._of[node.id]

    def kept(self, key: tuple[int, Index]) -> str:
        """The identifier of a value kept at a thread's own place."""
        if key not in self._kept:
            self._kept[key] = self.fresh(f"kept_{self.graph[key[0]].name or self.graph[key[0]].op}")
        return self._kept[key]
