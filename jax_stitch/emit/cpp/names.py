"""C++ identifiers from HLO names."""

from __future__ import annotations

import re

from jax_stitch.analysis.maps import Index
from jax_stitch.graph.model import Graph, Node

_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const
    const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false
    float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
    while xor xor_eq"""
_RUNTIME = """
    batch block blockIdx index j main q q0 row run shared st threadIdx
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t"""
"""What generated text calls by name; whatever else the runtime defines is in a namespace or ends in an underscore."""

RESERVED = frozenset(f"{_KEYWORDS} {_RUNTIME}".split())


def identifier(text: str) -> str:
    """Return ``text`` as a C++ identifier: neither a keyword, nor a word of the runtime, nor one that could be a
    macro.
    """
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "value"
    usable = re.match("[A-Za-z]", name) and not name.isupper() and name not in RESERVED
    return name if usable else f"v_{name}"


class Names:
    """Unique identifiers of one kernel."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._taken: dict[str, int] = {}
        self._of: dict[int, str] = {}
        self._own: dict[tuple[int, Index], str] = {}

    def beside(self, graph: Graph) -> Names:
        """Return identifiers for another graph in the same kernel."""
        names = Names(graph)
        names._taken = self._taken
        return names

    def fresh(self, base: str) -> str:
        """Return an identifier not given before, like ``base``."""
        stem = identifier(base)
        count = self._taken.get(stem, 0)
        self._taken[stem] = count + 1
        if not count:
            return stem
        return self.fresh(f"{stem}_{count}")

    def of(self, node: Node) -> str:
        """Return the one identifier of a node's buffer or storage."""
        if node.id not in self._of:
            self._of[node.id] = self.fresh(node.name or node.op)
        return self._of[node.id]

    def own(self, key: tuple[int, Index]) -> str:
        """Return the identifier of a value cached at a thread's own place."""
        if key not in self._own:
            self._own[key] = self.fresh(f"kept_{self.graph[key[0]].name or self.graph[key[0]].op}")
        return self._own[key]
