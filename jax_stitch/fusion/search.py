"""The state of a search for patterns: what has been taken, what is left, and what could grow there.

Planners decide which patterns to take and in what order; what a pattern is, and what taking one does to the graph, is
here. ``complete`` is the greedy planner: the best pattern first, until none is worth a kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from math import prod

from msgspec import Struct

from jax_stitch.analysis import sorts, spread
from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import Binding, inner_sizes
from jax_stitch.analysis.inputs_outputs import inputs_of, outputs_of
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.traffic import NEIGHBOURS, longest_row
from jax_stitch.analysis.reach import Reach
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_rematerializable, reason_left
from jax_stitch.devices import Device
from jax_stitch.fusion import region
from jax_stitch.fusion.columns import column_bytes
from jax_stitch.fusion.delta_evaluator import Gain, XlaKernels, evaluate, fits_a_block, strided_bytes
from jax_stitch.fusion.rewrites import reductions
from jax_stitch.fusion.seeds import Seed, SeedsOf, elementwise_seeds, reduction_seeds
from jax_stitch.graph.combiners import is_neutral
from jax_stitch.graph.model import Graph
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.util.values import replace


class Candidate(Struct, frozen=True):
    """What grew from a seed: what its split reaches, and of that the pattern, if one is worth it."""

    seed: Seed
    bound: dict[int, Binding]
    pattern: Pattern | None
    gain: Gain | None
    version: int
    """Of the search: patterns taken later may have made this one depend on itself."""


class _Region(Struct, frozen=True, eq=False):
    """What grew from one seed, which is what grows from every other seed that lies in it under the same split."""

    rows: int
    bound: Mapping[int, Binding]
    candidate: Candidate


class Search:
    """The graph as rewritten so far, the patterns taken, and what could be taken next: with ``columns`` False nothing
    that a CPU would read in short runs.
    """

    def __init__(self, graph: Graph, device: Device, loops: ThreadLoops, *, columns: bool = True):
        self.graph = graph
        self.device = device
        self._columns = columns
        self.loops = list(loops.patterns)
        self.refused = {**loops.refused, **sorts.refused(graph, device)}
        """Why the other loops, and sorts of long rows, stay with XLA, by node."""
        self.chosen: list[Pattern] = []
        self.small: list[Pattern] = []
        """Patterns of a single XLA kernel, taken to share a launch with others."""
        self.free = self._left()
        """Nodes that are in no pattern and could be."""
        self.reach = self._reaches()
        self.origins = XlaKernels(graph, self._taken())
        self.here = {i: i for i in range(len(graph))}
        """The nodes of the graph that the search began with, as they are now: of a reduction in two steps the last."""
        self.saved = 0.0
        """Seconds saved over XLA's kernels by all patterns taken (the sum of their gains when they were taken)."""
        self._version = 0
        self._candidates: dict[Seed, Candidate] = {}
        self._regions: list[_Region] = []

    def again(self) -> Search:
        """Return another search that starts where this one stands: neither sees what the other takes."""
        other = copy(self)
        other.loops, other.chosen, other.small = list(self.loops), list(self.chosen), list(self.small)
        other.free, other.here, other._regions = set(self.free), dict(self.here), list(self._regions)
        other._candidates = dict(self._candidates)
        return other

    def complete(self) -> None:
        """Take the best pattern that is left until none is worth it; lazily, since a pattern's gain hardly ever grows
        as others are taken. Then, largest value first, the elementwise ones.
        """
        self._run(reduction_seeds, best_first=True)
        self._run(elementwise_seeds, best_first=False)

    def _run(self, seeds_of: SeedsOf, *, best_first: bool) -> None:
        while (best := self._next(seeds_of, best_first)) is not None:
            self.take(best)

    def take(self, candidate: Candidate) -> None:
        """Take a candidate that is worth it. Where a reduction of its values has to be rewritten first, only that is
        done, and what grows there next has it.
        """
        pattern, gain = candidate.pattern, candidate.gain
        assert pattern is not None and gain is not None
        if self.is_kernel(pattern, gain):
            if not self._rewrites_mixed(pattern):
                self.saved += gain.seconds
                self._take(pattern)
        else:
            self.small.append(pattern)
            self._claim(pattern)

    def within(self, nodes: Collection[int], seed: Seed, may_share: bool = False) -> Candidate:
        """Return the largest pattern among free ``nodes`` under the split of ``seed``, one of them or what they read.
        With ``may_share`` it is also worth it where it would only save its launch, as a part of another.
        """
        bound = spread.bind(self.graph, seed.node, seed.binding, seed.rows, nodes)
        return self._candidate(seed, bound, nodes, may_share)

    def adopt(self, nodes: Collection[int], seed: Seed) -> None:
        """Take the pattern of these ``nodes`` under the split of ``seed``, as far as it is still worth a kernel.

        Both are of the graph that the search began with.
        """
        count = len(self.chosen)
        while len(self.chosen) == count:
            known, now = set(self.here.values()), {self.here[i] for i in nodes}
            # Where a reduction has been split in two since, its first step goes with it.
            steps = {o for i in now if self.graph[i].op == "reduce" for o in self.graph[i].operands} - known
            candidate = self.within((now | steps) & self.free, replace(seed, node=self.here[seed.node]))
            if not candidate.pattern or not candidate.gain:
                return
            self.take(candidate)

    def _left(self) -> set[int]:
        """Return the nodes that are in no pattern and could be."""
        taken = self._taken()
        left = {n.id for n in self.graph.nodes if n.id not in taken and n.id not in self.refused}
        return {i for i in left if self._is_candidate(i)}

    def _taken(self) -> set[int]:
        return {i for p in (*self.loops, *self.chosen, *self.small) for i in p.nodes}

    def _reaches(self) -> Reach:
        return Reach(self.graph, [p.nodes for p in (*self.loops, *self.chosen, *self.small)])

    def _is_candidate(self, i: int) -> bool:
        node = self.graph[i]
        return not is_rematerializable(node) and reason_left(self.graph, node) is None

    def is_worth(self, pattern: Pattern, gain: Gain, may_share: bool = False) -> bool:
        """Return whether a pattern may be taken: it fits, and saves time as a kernel; or, if it ``may_share`` another's
        launch, costs no bytes.
        """
        if not fits_a_block(self.graph, pattern, self.device) or self._is_refused(pattern):
            return False
        if self._finishes(pattern):
            return True
        if self.is_kernel(pattern, gain):
            return gain.seconds > 0
        if not may_share or self.crossed(pattern):  # Two steps in place of XLA's one kernel.
            return False
        is_quick = gain.penalty <= self.device.target.launch_seconds
        return gain.memory >= 0 and is_quick and not strided_bytes(self.graph, pattern)

    def is_kernel(self, pattern: Pattern, gain: Gain) -> bool:
        """Return whether a pattern is worth a launch of its own: it does the work of several kernels of XLA, or saves
        more in memory than the launches it may add.
        """
        added = 2 * self.device.target.launch_seconds
        return gain.merged > 1 or self._finishes(pattern) or gain.memory - gain.penalty > added

    def _finishes(self, pattern: Pattern) -> bool:
        """Return whether the pattern holds the last step of a reduction across rows, which is a kernel of its own
        making.
        """
        graph = self.graph
        return any(graph[o].op == PARTIAL for i in pattern.nodes if graph[i].op == "reduce" for o in graph[i].operands)

    def _next(self, seeds_of: SeedsOf, best_first: bool) -> Candidate | None:
        while True:
            best: Candidate | None = None
            for seed in seeds_of(self.graph, self.free, self.device):
                candidate = self._candidates.get(seed) or self._grow(seed)
                if candidate.gain is not None and (
                    best is None or best.gain is None or candidate.gain.seconds > best.gain.seconds
                ):
                    best = candidate
                    if not best_first:
                        break
            if best is None or best.version == self._version:
                return best
            self._grow(best.seed)

    def _grow(self, seed: Seed) -> Candidate:
        for known in self._regions:
            if known.rows == seed.rows and known.bound.get(seed.node) == seed.binding:
                candidate = replace(known.candidate, seed=seed)
                self._candidates[seed] = candidate
                return candidate
        before = self._candidates.get(seed)
        if before is None:
            bound = spread.bind(self.graph, seed.node, seed.binding, seed.rows, self.free)
        else:  # The split reaches nothing that was taken since.
            bound = before.bound
        candidate = self._candidate(seed, bound, self.free)
        if candidate.gain is None and candidate.pattern is not None and self.crossed(candidate.pattern):
            # What follows a reduction across the rows may be worth a kernel where that one is not.
            candidate = self._candidate(seed, bound, self.free - candidate.pattern.nodes)
        self._candidates[seed] = candidate
        self._regions.append(_Region(seed.rows, bound, candidate))
        return candidate

    def _candidate(
        self, seed: Seed, bound: dict[int, Binding], nodes: Collection[int], may_share: bool = False
    ) -> Candidate:
        pattern = region.form(self.graph, bound, seed.rows, nodes, self.reach, self.device)
        gain = self.gain(pattern) if pattern else None
        if pattern is not None and gain is not None and self._finishes(pattern):
            pattern, gain = self._finishing(bound, seed, pattern, gain)
        if pattern is not None and gain is not None and not self.is_worth(pattern, gain, may_share):
            gain = None
        return Candidate(seed, bound, pattern, gain, self._version)

    def _finishing(self, bound: dict[int, Binding], seed: Seed, pattern: Pattern, gain: Gain) -> tuple[Pattern, Gain]:
        """Return the pattern with the last step of a reduction, which some kernel has to do; where so few rows are too
        slow for all that could follow, only with what else there is one of for each row.
        """
        is_refused = self._is_refused(pattern)
        if gain.penalty <= self.device.target.launch_seconds and not is_refused:
            return pattern, gain
        few = {i for i in pattern.nodes if i in pattern.bindings and prod(inner_sizes(pattern.bindings[i])) == 1}
        small = region.form(self.graph, bound, seed.rows, few, self.reach, self.device)
        if small is None or not self._finishes(small):
            return pattern, gain
        own = self.gain(small)
        return (small, own) if is_refused or own.seconds > gain.seconds else (pattern, gain)

    def _is_refused(self, pattern: Pattern) -> bool:
        return not self._columns and column_bytes(self.graph, pattern, self.device) > 0

    def gain(self, pattern: Pattern) -> Gain:
        """Return what a pattern saves, besides those taken."""
        return evaluate(self.graph, self.origins, pattern, self.device)

    def _claim(self, pattern: Pattern) -> None:
        """Take a pattern's nodes out of what is left, and forgets what had been grown over them."""
        self.free -= pattern.nodes
        self.reach = self.reach.contracted(pattern.nodes)
        self.origins = self.origins.without(pattern.nodes)
        self._version += 1
        self._candidates = {k: c for k, c in self._candidates.items() if pattern.nodes.isdisjoint(c.bound)}
        self._regions = []

    def _rewrites_mixed(self, pattern: Pattern) -> bool:
        """Split the reductions of the pattern's values that are partly inside its rows; whether there were any."""
        users = {u for i in (*pattern.nodes, *pattern.inputs) for u in self.graph.users[i]} & self.free
        mixed = reductions.mixed_reductions(self.graph, dict(pattern.bindings), users)
        if mixed:
            self._move(*reductions.inside_first(self.graph, mixed))
        return bool(mixed)

    def _take(self, pattern: Pattern) -> None:
        """Add a pattern; where reductions cross its rows, rewrites the graph first."""
        cross = self.crossed(pattern)
        if cross:
            partial = sum(node_bytes(self.graph[i]) for i in cross)
            blocks = partial_blocks(pattern.rows, self.device, partial, row_bytes(self.graph, pattern))
            if not all(self._starts_neutral(i) for i in cross):
                # XLA makes a reduction over one block's results a reshape, which drops the initial value.
                blocks = max(blocks, min(2, pattern.rows))
            graph, ids, first = reductions.in_two_steps(self.graph, cross, blocks)
            self._move(graph, ids)
            nodes = frozenset(first[i] if i in cross else ids[i] for i in pattern.nodes)
            pattern = Pattern(
                nodes,
                pattern.rows,
                {ids[i]: b for i, b in pattern.bindings.items()},
                inputs_of(graph, nodes),
                outputs_of(graph, nodes),
                blocks,
            )
        self.chosen.append(pattern)
        self._claim(pattern)

    def _starts_neutral(self, reduction: int) -> bool:
        node = self.graph[reduction]
        return is_neutral(node.graphs["to_apply"], self.graph[node.operands[1]])

    def crossed(self, pattern: Pattern) -> set[int]:
        """Return the pattern's reductions across its rows."""
        return {i for i in pattern.nodes if i not in pattern.bindings and self.graph[i].op == "reduce"}

    def _move(self, graph: Graph, ids: dict[int, int]) -> None:
        """Continue on a rewritten graph."""
        self.graph = graph
        self.here = {start: ids[now] for start, now in self.here.items()}
        self.chosen = [p.renumbered(ids) for p in self.chosen]
        self.small = [p.renumbered(ids) for p in self.small]
        self.loops = [p.renumbered(ids) for p in self.loops]
        self.refused = {ids[i]: reason for i, reason in self.refused.items()}
        self.free = self._left()
        self.reach = self._reaches()
        self.origins = XlaKernels(graph, self._taken())
        self._version += 1
        self._candidates = {}
        self._regions = []


LONG_ROW_BYTES = 16384
"""Of a row that is work enough for a block of a GPU."""

PARTIAL_SHARE = 16
"""Of a row's bytes one so many, that a partial result may have where each row has its own."""


def row_bytes(graph: Graph, pattern: Pattern) -> int:
    """Return the bytes that a row reads and writes; or the values of its longest pass, if it computes more than
    it moves.
    """
    moved = sum(node_bytes(graph[i]) for i in (*pattern.inputs, *pattern.outputs) if i in pattern.bindings)
    return max(moved // pattern.rows, 4 * longest_row(graph, pattern))


def partial_blocks(rows: int, device: Device, partial_bytes: int, row_bytes: int) -> int:
    """Return the number of blocks of a kernel with cross-row reductions: enough to fill the device, few enough that
    partial results, of so many bytes for each block, stay small. On a GPU each of a few long rows has its own.
    """
    if device.target.lanes_are_vectors:
        # As many as have a row for each lane: a block makes a partial result of all its lanes, also of idle ones.
        return max(1, min(-(-rows // 4), max(4 * device.multiprocessors, min(-(-rows // NEIGHBOURS), 1024))))
    most = 2 * device.multiprocessors
    each_row = row_bytes >= LONG_ROW_BYTES and partial_bytes * PARTIAL_SHARE <= row_bytes
    return max(1, min(rows if each_row else -(-rows // 4), most))
