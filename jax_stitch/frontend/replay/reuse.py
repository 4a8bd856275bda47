"""Which inputs of its kernels a program has no more use for, so that outputs may be written over them.

Only a hint: XLA copies an array that a kernel would overwrite and somebody still reads. So an input is given up only
where XLA need not. What a kernel itself makes of an input that it overwrites is for the kernel to say; but two of its
inputs can come to be one array, where XLA finds that they are equal, and then both have to be read accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.graph.opcodes import DATA_MOVEMENT, ELEMENTWISE, IN_PLACE

from .order import Step, order
from .stitched import Segment, StitchedGraph

_VIEWS = frozenset({"reshape", "opt-barrier"})
"""Operations whose result can be the memory of their operand."""
_FUSIBLE = ELEMENTWISE | DATA_MOVEMENT | {"copy", "dynamic-update-slice", "gather", "reduce", "reduce-window"}
"""What XLA may compute in the kernels of those that read it, also in several: then its operands are read there."""
_ALONE_ON_A_HOST = frozenset({"scatter"})
"""In whose kernels XLA:CPU computes nothing else."""
_MOST_WAITS = 8
"""Values that a kernel waits for at most, to overwrite an input."""
_FIXED = frozenset({"constant", "iota", "parameter"})
"""What is not there to be written."""

Apart = Callable[[int, int], bool]
"""Whether two values, by number of parameter, are surely not the same array."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The number of a kernel's input that nobody reads after it, and of an output that could be written over it."""

    input: int
    output: int
    twins: tuple[int, ...]
    """Other inputs that may come to be the same array."""
    after: tuple[int, ...] = ()
    """Values of others that read the input: the kernel has to wait for them."""


def spent(
    stitched: StitchedGraph, homes: Mapping[int, int], *, may_wait: bool = False
) -> dict[Segment, tuple[Spent, ...]]:
    """Return the inputs that segments may overwrite, also in loops and branches.

    ``homes`` are the parameters that may be, by number, each with the result that takes its memory; each is then an
    array of its own. With ``may_wait``, on a host, segments can be told to wait for those that read such a parameter
    too.
    """
    by_segment: dict[Segment, tuple[Spent, ...]] = {}
    _gather(stitched, homes, lambda a, b: bool(homes), by_segment, may_wait)
    return by_segment


def _gather(
    stitched: StitchedGraph,
    homes: Mapping[int, int],
    apart: Apart,
    by_segment: dict[Segment, tuple[Spent, ...]],
    may_wait: bool,
) -> None:
    if not stitched.segments and not stitched.children:
        return
    lives = _Lives(stitched, homes, apart, may_wait)
    for segment in stitched.segments:
        if pairs := tuple(lives.pairs(segment)):
            by_segment[segment] = pairs
    for (node, name), child in stitched.children.items():
        if name == "body" and stitched.graph[node].op == "while":
            carried = {k: k for k in range(len(child.graph.parameters))}
            _gather(child, carried, lives.carries(node, child), by_segment, may_wait)
        else:
            _gather(child, {}, lambda a, b: False, by_segment, may_wait)


class _Lives:
    """Where the values of a graph are read, in the order in which its segments and other nodes run."""

    def __init__(self, stitched: StitchedGraph, homes: Mapping[int, int], apart: Apart, may_wait: bool):
        self._may_wait = may_wait
        self._graph = graph = stitched.graph
        self._made = {o: s for s in stitched.segments for o in s.outputs}
        self._apart = apart
        self._number = {p: k for k, p in enumerate(graph.parameters)}
        self._results = [self._root(r) for r in graph.results]
        self._home = {graph.parameters[p]: self._first(r) for p, r in homes.items() if self._returned_once(r)}
        self._steps: dict[Step, int] = {}
        self._before: list[int] = []
        """For each step those that it waits for, as the bits of a number."""
        self._readers: dict[int, int] = {}
        """For each value in memory the steps that read it, as such bits."""
        self._in_order = order(stitched)
        for number, step in enumerate(self._in_order):
            self._steps[step] = number
            reads = step.waits_for if isinstance(step, Segment) else graph[step].operands
            waits = 0
            for read in reads:
                maker = self._steps[self._made.get(read, read)]
                waits |= self._before[maker] | 1 << maker
            self._before.append(waits)
        self._note_readers()

    def _note_readers(self) -> None:
        """Note by whom each value in memory is read: by what takes it, and by those that XLA may compute that in."""
        graph, steps = self._graph, self._steps
        alone = _ALONE_ON_A_HOST if self._may_wait else frozenset()
        at: dict[int, int] = {}
        for step, number in reversed(steps.items()):
            operation = "" if isinstance(step, Segment) else graph[step].op
            at[number] = 0 if operation in _VIEWS else 1 << number
            if isinstance(step, int) and operation in _VIEWS | _FUSIBLE:
                for user in graph.users[step]:
                    at[number] |= at[steps[user]] if user in steps and graph[user].op not in alone else 0
            for read in step.inputs if isinstance(step, Segment) else graph[step].operands:
                root = self._root(read)
                self._readers[root] = self._readers.get(root, 0) | at[number]

    def _returned_once(self, result: int) -> bool:
        """Return whether no other result has to be given the same value, which then is copied in any case."""
        return self._results.count(self._results[result]) == 1

    def _first(self, result: int) -> int:
        """Return the value in whose memory a result is made: what only goes on in it, changed in part."""
        graph, i = self._graph, self._results[result]
        while i not in self._made and graph[i].op in IN_PLACE:
            before = graph[i].operands[0]
            inside = self._made[before].nodes if before in self._made else frozenset()
            if not inside.issuperset(u for u in graph.users[before] if u != i):
                break
            i = self._root(before)
        return i

    def _root(self, i: int) -> int:
        """Return the value in whose memory a value can be."""
        while i not in self._made and self._graph[i].op in _VIEWS:
            i = self._graph[i].operands[0]
        return i

    def pairs(self, segment: Segment) -> Iterator[Spent]:
        """Yield what a segment may overwrite; first what comes back to where it was."""
        if segment not in self._steps:
            return
        at_home = {o: [b for b, home in self._home.items() if home == o] for o in segment.outputs}
        twins: dict[int, tuple[int, ...]] = {}
        for homed in (True, False):
            for k, o in enumerate(segment.outputs):
                if bool(at_home[o]) is not homed:
                    continue
                for p, v in enumerate(segment.inputs):
                    root = self._root(v)
                    wanted = root in at_home[o] if homed else self._is_temporary(root)
                    if not wanted or not _like(self._graph, v, o):
                        continue
                    after = self._to_wait_for(segment, root, homed)
                    if after is not None:
                        if p not in twins:
                            twins[p] = tuple(self._twins(segment, p))
                        yield Spent(p, k, twins[p], after)

    def _is_temporary(self, root: int) -> bool:
        return self._graph[root].op not in _FIXED or root in self._made

    def _to_wait_for(self, segment: Segment, root: int, homed: bool) -> tuple[int, ...] | None:
        """Return what a segment has to wait for, so that all others that read a value have done so; None if it
        cannot.
        """
        if root in self._results:
            return None
        own = self._steps[segment]
        others = self._readers[root] & ~(self._before[own] | 1 << own)
        if not others:
            return ()
        if not self._may_wait or not homed:
            return None
        late = [s for s in range(len(self._before)) if others >> s & 1]
        if any(self._before[s] >> own & 1 for s in late):
            return None
        last = [s for s in late if not any(self._before[t] >> s & 1 for t in late)]
        values = [self._value(s) for s in last]
        if len(last) > _MOST_WAITS or None in values:
            return None
        self._add_waits(own, late)
        return tuple(v for v in values if v is not None)

    def _value(self, number: int) -> int | None:
        """Return an array that is there once a step has run; None where it has none."""
        step = self._in_order[number]
        made = step.outputs[0] if isinstance(step, Segment) else step
        return made if isinstance(self._graph[made].type, TensorType) else None

    def _add_waits(self, own: int, others: Sequence[int]) -> None:
        """Note that a step waits for others, and with it all that wait for it."""
        more = 0
        for s in others:
            more |= self._before[s] | 1 << s
        for t, before in enumerate(self._before):
            if t == own or before >> own & 1:
                self._before[t] = before | more

    def _twins(self, segment: Segment, number: int) -> Iterator[int]:
        v = segment.inputs[number]
        for p, other in enumerate(segment.inputs):
            if p != number and _like(self._graph, v, other) and not self.are_apart(v, other):
                yield p

    def are_apart(self, a: int, b: int) -> bool:
        """Return whether two values are surely not the same array: parameters that are not, and what kernels have
        written.
        """
        a, b = self._root(a), self._root(b)
        if a in self._made or b in self._made:
            known = all(i in self._made or self._graph[i].op == "parameter" for i in (a, b))
            return a != b and known
        if a in self._number and b in self._number:
            return a != b and self._apart(self._number[a], self._number[b])
        return False

    def carries(self, loop: int, body: StitchedGraph) -> Apart:
        """Return whether two values that a loop carries are apart: they begin and go on as other arrays.

        XLA makes one of two that are equal, and the first iteration part of what is around it where there is but one.
        """
        first = self._graph[loop].operands
        inner = _Lives(body, {}, lambda a, b: False, False)

        def apart(a: int, b: int) -> bool:
            return self.are_apart(first[a], first[b]) and inner._results[a] != inner._results[b]

        return apart


def _like(graph: Graph, a: int, b: int) -> bool:
    left, right = graph[a].type, graph[b].type
    return isinstance(left, TensorType) and isinstance(right, TensorType) and left == right and left.size > 0
