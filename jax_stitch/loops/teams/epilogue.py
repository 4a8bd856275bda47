"""Epilogues of loops (epilogue fusion): what is computed element by element from the values that a loop leaves, where
each team needs only its own. Its threads compute it after the last iteration, and what only it reads is never written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from types import MappingProxyType

from jax_stitch.analysis.accesses import CACHED, COMPUTED, LEFT_OUT, LOADED, Element, View, walk
from jax_stitch.analysis.binding import Binding, covers, index_of, inner_sizes, position_in, to_result
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.team import End, TeamLoop
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_rematerializable, reason_unsupported
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.indices import var
from jax_stitch.ir.indices.variables import PLACE, row_index
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.teams.team import needed
from jax_stitch.util.values import replace

MOVES = frozenset({"broadcast", "reshape", "slice", "transpose"})
"""Operations of epilogues that only move elements."""

MOST_OPERATIONS = 64
"""The longest epilogue: all of its operations are written out for each of its results."""


def with_epilogue(graph: Graph, pattern: Pattern, taken: Collection[int]) -> Pattern:
    """Return a pattern of a loop in teams with its epilogue, of nodes that no other pattern has ``taken``."""
    loop = pattern.loop
    assert isinstance(loop, TeamLoop)
    if loop.blocks > 1 or loop.inner:
        return pattern
    found = _Epilogue(graph, loop, pattern, taken)
    bound = found.bound()
    if not bound or len(bound) > MOST_OPERATIONS:
        return pattern
    inside = {*pattern.nodes, *bound}
    results = {c.result for c in loop.carried if c.result is not None}
    ends = [i for i in bound if _is_read(graph, i, inside)]
    left = [i for i in pattern.outputs if i not in results or _is_read(graph, i, inside)]
    outside = {o for i in bound for o in graph[i].operands if o not in inside and not found.is_written(o)}
    return replace(
        pattern,
        nodes=frozenset(inside),
        copies=frozenset(found.numbers & needed(graph, bound)),
        inputs=tuple(sorted({*pattern.inputs, *outside})),
        outputs=tuple(sorted({*left, *ends})),
        loop=replace(loop, ends=tuple(End(i, bound[i]) for i in ends)),
    )


def _is_read(graph: Graph, i: int, inside: Collection[int]) -> bool:
    """Return whether something else than the epilogue needs a value."""
    return i in graph.result_set or any(u not in inside for u in graph.users[i])


class _Epilogue(View):
    """The values behind a loop that its teams may compute, in their order."""

    def __init__(self, graph: Graph, loop: TeamLoop, pattern: Pattern, taken: Collection[int]):
        super().__init__(graph)
        self._taken = taken
        self._loop, self._row = loop, row_index(loop.rows)
        self._results = {c.result: c.binding for c in loop.carried if c.result is not None}
        self._bound: dict[int, Binding] = {}
        self.numbers: set[int] = set()
        """Arrays of one number, and the like, which others may compute too."""
        (self._while,) = (i for i in pattern.nodes if graph[i].op == "while")
        self._before = {*graph.parameters, *needed(graph, graph[self._while].operands)}
        """Values from before the loop: other kernels that compute them do not wait for it."""

    def bound(self) -> Mapping[int, Binding]:
        """Return the values and their bindings."""
        for n in self.graph.nodes:
            if n.op not in ELEMENTWISE and n.op not in MOVES:
                continue
            if isinstance(n.type, TensorType) and all(map(self.is_written, n.operands)):
                self.numbers.add(n.id)
            elif n.id > self._while and n.id not in self._taken:
                self._try(n)
        for i in sorted(self._bound, reverse=True):
            if _is_read(self.graph, i, {*self._results, *self._bound}) and self._is_larger(i):
                del self._bound[i]
        return MappingProxyType(self._bound)

    def _is_larger(self, i: int) -> bool:
        """Return whether a value takes more memory than each of those that it is made of, as what is broadcast."""
        size = node_bytes(self.graph[i])
        made_of = self._results.keys() & needed(self.graph, (i,))
        return all(node_bytes(self.graph[r]) < size for r in made_of)

    def is_written(self, i: int) -> bool:
        """Return whether a value stands in the text of a kernel: it is made of numbers and indices alone."""
        return i in self.numbers or is_rematerializable(self.graph[i])

    def kind(self, element: Element) -> str:
        i, _ = element
        if i in self._results:
            return CACHED
        if i in self._bound or i in self.numbers:
            return COMPUTED
        return LEFT_OUT if is_rematerializable(self.graph[i]) else LOADED

    def _try(self, n: Node) -> None:
        known = {**self._results, **self._bound}
        own = [k for k, o in enumerate(n.operands) if o in known]
        if not own or not isinstance(n.type, TensorType) or reason_unsupported(self.graph, n) is not None:
            return
        if not all(o in known or o in self._before or self.is_written(o) for o in n.operands):
            return
        for k in own:
            binding = to_result(self.graph, n, k, known[n.operands[k]])
            if binding is not None and covers(binding, self._loop.rows):
                self._bound[n.id] = binding
                if self._is_own(n, binding):
                    return
                del self._bound[n.id]

    def _is_own(self, n: Node, binding: Binding) -> bool:
        """Return whether a team computes its elements of a value from what it has itself."""
        index = index_of(binding, self._row, var(PLACE, prod(inner_sizes(binding))))
        reached = walk(self, [(n.id, index)])
        return all(position_in(self._results[i], self._row, at) is not None for i, at in reached.cached)
