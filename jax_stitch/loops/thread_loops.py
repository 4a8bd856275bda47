"""Whole loops as patterns: each row of what they carry in one thread, from what they start with to what is made of what
they leave.

Loops one after another share a kernel where their rows agree; so do the operations before and after them that each
row can do by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from msgspec import Struct

from jax_stitch.analysis.binding import Binding, covers, result_dims
from jax_stitch.analysis.contraction import is_contraction
from jax_stitch.analysis.patterns.nest import Nest, NestedLoop, Output
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.reach import Reach
from jax_stitch.analysis.support import is_rematerializable, reason_unsupported
from jax_stitch.analysis.terms import step_count
from jax_stitch.devices import Device
from jax_stitch.graph.model import STREAMED, Graph, Node, TensorType
from jax_stitch.ir.indices.variables import ROW
from jax_stitch.ir.operations import HEAVY
from jax_stitch.loops.cost.weights import combiner_weight, own_weight, total
from jax_stitch.loops.nest import NotStitched, Opened, open_loops
from jax_stitch.loops.nest_splits import splits
from jax_stitch.loops.nest_walk import Walker
from jax_stitch.loops.short_loops import SHORT, all_short

FEW = 8
"""Rows that a loop may lose to share a kernel with another."""

ELEMENT_SECONDS = 3e-9
"""What one element takes in a GPU's thread that waits for nobody but itself."""

MOST_TERMS, LONG = 512, 16
"""Multiplications of an iteration in products of as many steps as ``LONG`` or more. What they multiply with, weights
mostly, does not fit a thread's registers; written out they keep compilers busy for long; and a team shares what it
reads.
"""

VECTOR_TERMS = 256
"""The same where lanes are vectors: with 512 a compiler took twice as long as for a team, which was faster too."""

TOO_LONG = "a loop whose products are too long for each thread to have one row's"

REPEATED = 8
"""Operations that every row recomputes rather than read what they make."""


SMALL = 64
"""Elements of a value that every row makes for itself, whatever it takes: once, outside the loops."""


class ThreadLoops(Struct, frozen=True):
    """The patterns, and for each ``while`` that is in none of them why."""

    patterns: tuple[Pattern, ...]
    refused: Mapping[int, str]


IN_TILES = "a loop whose rows are tiles, each for a team"
"""Why no thread runs a loop by itself, as the end of a sentence."""


def thread_loops(graph: Graph, device: Device) -> ThreadLoops:
    """Return a pattern for every loop of ``graph`` (and those that join it) that is local to the rows of what it
    carries.
    """
    opened = open_loops(graph)
    refused = dict(opened.refused)
    groups: list[_Group] = []
    short = all_short(graph, device)
    for node in graph.nodes:
        if short and node.op == "while":
            refused[node.id] = SHORT
            continue
        loops = tuple(nested for nested in opened.loops if nested.node == node.id)
        if not loops:
            continue
        if STREAMED in node.attributes:
            refused[node.id] = IN_TILES
            continue
        try:
            group = _Group.of(graph, opened, loops, device)
        except NotStitched as error:
            refused[node.id] = str(error)
            continue
        joined = groups[-1].joined(group) if groups else None
        if joined is not None:
            groups[-1] = joined
        else:
            groups.append(group)
    patterns: list[Pattern] = []
    for group in groups:
        try:
            patterns.append(group.pattern([p.nodes for p in patterns]))
        except NotStitched as error:
            refused |= {nested.node: str(error) for nested in group.loops}
    return ThreadLoops(tuple(patterns), MappingProxyType(refused))


def _terms(graph: Graph, i: int) -> int:
    """Return the multiplications of one element, if of a long product."""
    node = graph[i]
    steps = step_count(graph, node.id) if node.op == "dot" else 0
    return steps if steps >= LONG else 0


@dataclass(frozen=True, eq=False)
class _Group:
    """Loops that run one after another in the same threads, and the nodes between them."""

    graph: Graph
    opened: Opened
    device: Device
    loops: tuple[NestedLoop, ...]
    between: frozenset[int]
    rows: int
    bindings: Mapping[int, Binding]

    @classmethod
    def of(
        cls,
        graph: Graph,
        opened: Opened,
        loops: tuple[NestedLoop, ...],
        device: Device,
        between: frozenset[int] = frozenset(),
        rows: int | None = None,
    ) -> _Group:
        """Return the loops under the finest split that they are local under (or that has ``rows``)."""
        reason: NotStitched | None = None
        for count, bindings in splits(opened, loops):
            if rows is not None and count != rows:
                continue
            group = cls(graph, opened, device, loops, between, count, bindings)
            try:
                group._check_products()
                group._check(group._walker(between))
            except NotStitched as error:
                reason = reason or error
                continue
            return group
        raise reason or NotStitched("a loop whose rows differ from the other's")

    def _walker(self, inside: Collection[int]) -> Walker:
        most = self.device.target.row_statements
        return Walker(self.opened, self.loops, inside, len(self.graph), self.rows, self.bindings, most)

    def _check_products(self) -> None:
        """Refuse before elements are followed, which takes long, what ``_check`` would refuse for its products."""
        if not self.device.target.lanes_are_vectors:
            return
        graph, outer = self.opened.graph, len(self.graph)
        waiting = [c.next for nested in self.loops for c in nested.carried]
        waiting += [s.update for nested in self.loops for s in nested.stacked]
        seen: set[int] = set()
        while waiting:
            i = waiting.pop()
            if i >= outer and i not in seen:
                seen.add(i)
                waiting += graph[i].operands
        if (
            sum(graph[i].tensor.size // self.rows * _terms(graph, i) for i in seen if graph[i].op == "dot")
            > VECTOR_TERMS
        ):
            raise NotStitched(TOO_LONG)

    def _check(self, walker: Walker) -> None:
        walker.check_loops()
        full = (
            not self.device.target.lanes_are_vectors
            and self.rows >= self.device.fp32_lanes * self.device.multiprocessors
        )
        most = VECTOR_TERMS if self.device.target.lanes_are_vectors else MOST_TERMS
        if not full and sum(_terms(self.opened.graph, i) for i, _ in walker.reached) > most:
            raise NotStitched(TOO_LONG)
        if self.rows < 32 and not self.device.target.lanes_are_vectors:
            # Few rows leave the device idle: XLA's kernels, one after the other, may still be faster.
            kernels = {n.kernel for n in self.opened.graph.nodes[len(self.graph) :] if n.kernel}
            if len(walker.reached) * ELEMENT_SECONDS > max(1, len(kernels)) * self.device.target.launch_seconds:
                raise NotStitched("a loop with too much work for each of too few rows")

    @property
    def whiles(self) -> frozenset[int]:
        return frozenset(nested.node for nested in self.loops)

    @property
    def results(self) -> frozenset[int]:
        """Return what stands for the values that the loops leave."""
        graph = self.graph
        single = {w for w in self.whiles if isinstance(graph[w].type, TensorType)}
        return frozenset(single | {u for w in self.whiles - single for u in graph.users[w]})

    def joined(self, other: _Group) -> _Group | None:
        """Return both groups as one, where they can follow one another in the same threads."""
        rows = sorted({self.rows, other.rows}, reverse=True)
        if len(rows) > 1 and rows[0] > FEW:
            return None
        reach = Reach(self.graph)
        after = {i for w in self.whiles for i in reach.after(w)}
        before = {i for w in other.whiles for i in reach.before(w)}
        between = frozenset((after & before) - self.results - other.whiles)
        if not all(self._can_hold(i) for i in between):
            return None
        inside = self.between | other.between | between
        for count in rows:
            try:
                return _Group.of(self.graph, self.opened, (*self.loops, *other.loops), self.device, inside, count)
            except NotStitched:
                continue
        return None

    def _can_hold(self, i: int) -> bool:
        """Return whether a thread could compute a node."""
        node = self.graph[i]
        if node.op == "get-tuple-element":
            return self.graph[node.operands[0]].op == "reduce" and self._can_hold(node.operands[0])
        if is_rematerializable(node) or node.op in ("parameter", "while", "conditional"):
            return False
        return is_contraction(self.graph, node) or (
            node.op != "reduce" and reason_unsupported(self.graph, node) is None
        )

    def pattern(self, taken: Sequence[frozenset[int]]) -> Pattern:
        """Return the pattern of the loops and of all around them that the same threads can do; ``taken`` are other
        patterns' nodes.
        """
        reach = Reach(self.graph, taken)
        own = set(self.results | self.whiles)
        others = {i for nodes in taken for i in nodes}
        for later, earlier in ((True, True), (True, False), (False, False)):
            members = own | self.between
            if later:
                members |= self._later(members, others, reach)
            writable = self._outputs(members, own | self.between, reach)
            if writable is None:
                continue
            members, _ = writable
            if earlier:
                members = members | self._earlier(members, others)
            try:
                return self._formed(members, reach)
            except NotStitched:
                continue
        raise NotStitched("a loop whose results are used in ways that its rows cannot write")

    def _formed(self, members: set[int], reach: Reach) -> Pattern:
        """Return the pattern of exactly these nodes."""
        if reach.convex_part(members) != members:
            raise NotStitched("a loop that others wait for and that waits for them")
        walker = self._walker(members)
        self._check(walker)
        outputs: dict[int, Output] = {}
        needed = self._read_outside(members)
        while needed:
            i = needed.pop()
            if i not in outputs:
                output = walker.output(i)
                if output is None:
                    raise NotStitched("a loop whose results are used in ways that its rows cannot write")
                outputs[i] = output
            needed |= walker.read_back - outputs.keys()
        walker.check_text()
        inputs, written = tuple(sorted(walker.inputs)), tuple(sorted(outputs))
        carried = [c.parameter for nested in self.loops for c in nested.carried]
        carried += [nested.condition for nested in self.loops if nested.condition is not None]
        nest = Nest(
            self.opened.graph,
            self.loops,
            frozenset(members - (self.whiles - self.results)),
            self.rows,
            MappingProxyType({i: walker.binding(i) for i in carried}),
            inputs,
            tuple(outputs[i] for i in written),
            len(walker.reached),
            *self._work(walker),
        )
        return Pattern(frozenset(members), self.rows, {}, inputs, written, loop=nest)

    def _work(self, walker: Walker) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the work that each row does and that all rows share."""
        varying: list[Node] = []
        uniform: list[Node] = []
        for i, index in walker.reached:
            of_row = any(ROW in v.name for e in index for v in e.variables())  # the names of data that it picks, too
            (varying if of_row else uniform).append(self.opened.graph[i])
        weigh = self._weight
        return total(weigh, varying), total(weigh, uniform)

    def _weight(self, node: Node) -> tuple[float, float]:
        """Weigh an element: of a reduction or a product, all that it combines."""
        if node.op not in ("dot", "reduce"):
            return own_weight(node)
        return step_count(self.opened.graph, node.id) * combiner_weight(node), 0.0

    def _read_outside(self, members: Collection[int]) -> set[int]:
        graph, results = self.graph, self.graph.result_set
        return {
            i
            for i in members
            if isinstance(graph[i].type, TensorType) and (i in results or any(u not in members for u in graph.users[i]))
        }

    def _later(self, members: Collection[int], others: Collection[int], reach: Reach) -> set[int]:
        """Return nodes that need what the loops leave and nothing else that comes after them."""
        later: set[int] = set()
        after = {i for w in self.whiles for i in reach.after(w)}
        for i in sorted(after):
            operands = self.graph[i].operands
            ready = all(o in members or o in later or o not in after for o in operands)
            if i not in members and i not in others and ready and self._can_hold(i):
                later.add(i)
        return later

    def _outputs(self, members: set[int], own: Collection[int], reach: Reach) -> tuple[set[int], set[int]] | None:
        """Return the members less those whose values are read outside though the rows cannot write them."""
        while True:
            walker = self._walker(members)
            walker.check_loops()
            needed = self._read_outside(members)
            bad = {i for i in needed if walker.output(i) is None}
            if not bad:
                return members, needed
            if bad & set(own):
                return None
            members = members - bad - {i for b in bad for i in reach.after(b) if i not in own}

    def _earlier(self, members: Collection[int], others: Collection[int]) -> set[int]:
        """Return nodes that only members read, and that rows make for themselves at little or no cost."""
        graph, inside, results = self.graph, set(members), self.graph.result_set
        cost: dict[int, int] = {}
        for node in graph.nodes:
            if self._can_hold(node.id):
                cost[node.id] = sum(cost.get(o, 0) for o in node.operands) + (8 if node.op in HEAVY else 1)
        for i in reversed(range(len(graph))):
            node = graph[i]
            if i in inside or i in others or i in results or not graph.users[i] or not self._can_hold(i):
                continue
            if not all(u in inside for u in graph.users[i]):
                continue
            own = i in self.bindings and covers(self.bindings[i], self.rows)
            if own or self.rows == 1 or prod(result_dims(graph, node)) <= SMALL or cost[i] <= REPEATED:
                inside.add(i)
        # A result of a reduction is made where the reduction is.
        apart = {i for i in inside if graph[i].op == "get-tuple-element" and graph[i].operands[0] not in inside}
        return inside - (apart - self.results) - set(members)
