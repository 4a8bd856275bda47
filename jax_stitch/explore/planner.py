"""A simple planner: grow a region around every seed, take the best, repeat; then pack what is left into shared
launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from jax_stitch.devices import Device
from jax_stitch.explore import region, rewrite
from jax_stitch.explore.apart import apart
from jax_stitch.explore.binding import Binding, rows_of
from jax_stitch.explore.cost import Gain, Origins, evaluate, fits_a_block, node_bytes, scattered_bytes
from jax_stitch.explore.grid import in_phases, split_to_fit
from jax_stitch.explore.locality import PARTIAL
from jax_stitch.explore.loop_patterns import prepared, stitched_loops
from jax_stitch.explore.packing import Kernel, pack, pack_loops
from jax_stitch.explore.pattern import Cut, FusionPlan, Pattern
from jax_stitch.explore.reach import Reach
from jax_stitch.explore.recompute import choose_reads
from jax_stitch.explore.support import is_free, reason_unsupported
from jax_stitch.explore.thread_loops import ThreadLoops
from jax_stitch.graph.model import Graph, Node, TensorType


@dataclass(frozen=True, slots=True)
class Seed:
    """A value and the split of it to grow a region from."""

    node: int
    binding: Binding
    rows: int


def explore(graph: Graph, device: Device) -> FusionPlan:
    """Chooses the patterns of ``graph`` (and of the computations it calls) that are worth a stitched kernel on
    ``device``.
    """
    graph = prepared(graph, device)
    search = _Search(graph, device, stitched_loops(graph, device))
    search.run(_reduction_seeds, best_first=True)
    search.run(_elementwise_seeds, best_first=False)
    chosen = [piece for p in search.chosen for piece in apart(search.graph, p)]
    packed = pack(search.graph, Origins(search.graph), chosen, search.small, search.loops, device)
    chosen_reads = _with_reads(search.graph, packed, device)
    kernels = tuple(piece for kernel in chosen_reads for piece in split_to_fit(in_phases(kernel), device))
    whole = {i for p in search.loops for i in p.nodes}
    kernels += pack_loops(search.graph, search.loops, [_nodes(k) for k in kernels], device)
    children = {
        (node.id, name): _left_alone(called) if _is_in_cache(node, called, device) else explore(called, device)
        for node in search.graph.nodes
        if node.op in ("while", "conditional", "call") and node.id not in whole
        for name, called in node.graphs.items()
    }
    return FusionPlan(search.graph, kernels, _cuts(search.graph, kernels, search.refused), children)


def _is_in_cache(node: Node, body: Graph, device: Device) -> bool:
    """Whether all that an iteration works on stays in a core's cache: on a CPU XLA's calls then cost less than ours."""
    if device.kind != "cpu" or node.op != "while":
        return False
    return all(node_bytes(n) <= device.shared_per_block_optin for n in body.nodes if n.op not in ("parameter", "while"))


def _left_alone(graph: Graph) -> FusionPlan:
    reason = "the body of a loop whose values stay in the cache, where XLA's calls cost less"
    cuts = tuple(replace(c, reason=reason) for c in _cuts(graph, (), {}))
    return FusionPlan(graph, (), cuts, {})


def _with_reads(graph: Graph, packed: Sequence[Kernel], device: Device) -> tuple[Kernel, ...]:
    """The kernels with what they read chosen, less the patterns that nobody reads from any more."""
    while True:
        chosen = iter(choose_reads(graph, [p for kernel in packed for p in kernel], device))
        kernels = tuple(tuple(next(chosen) for _ in kernel) for kernel in packed)
        if all(p.outputs for kernel in kernels for p in kernel):
            return kernels
        kept = [
            [p for p, read in zip(*pair, strict=True) if read.outputs] for pair in zip(packed, kernels, strict=True)
        ]
        packed = tuple(tuple(kernel) for kernel in kept if kernel)


def _nodes(kernel: Kernel) -> frozenset[int]:
    return frozenset(i for p in kernel for i in p.nodes)


SeedsOf = Callable[[Graph, set[int], Device], Iterable[Seed]]
"""The seeds of a graph among the nodes that are still free."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What grew from a seed: the nodes it was looked for among, and the pattern, if one is worth it."""

    seed: Seed
    reached: frozenset[int]
    pattern: Pattern | None
    gain: Gain | None
    version: int
    """Of the search: patterns taken later may have made this one depend on itself."""


@dataclass(frozen=True, slots=True, eq=False)
class _Region:
    """What grew from one seed, which is what grows from every other seed that lies in it under the same split."""

    rows: int
    bound: Mapping[int, Binding]
    candidate: _Candidate


class _Search:
    """The state of the greedy search: the graph so far rewritten and the patterns taken."""

    def __init__(self, graph: Graph, device: Device, loops: ThreadLoops):
        self.graph = graph
        self.device = device
        self.loops = list(loops.patterns)
        self.refused = dict(loops.refused)
        """Why the other loops stay with XLA, by node."""
        self.chosen: list[Pattern] = []
        self.small: list[Pattern] = []
        """Patterns of a single XLA kernel: worth a launch only when packed with others."""
        self._free = self._left()
        self._reach = self._reaches()
        self.origins = Origins(graph, self._taken())
        self._version = 0
        self._found: dict[tuple[int, Binding], _Candidate] = {}
        self._regions: list[_Region] = []

    def run(self, seeds_of: SeedsOf, *, best_first: bool) -> None:
        """Takes patterns grown from seeds until none is worth it; lazily, since a pattern's gain hardly ever grows as
        others are taken.
        """
        while (best := self._next(seeds_of, best_first)) is not None:
            assert best.pattern is not None and best.gain is not None
            if self._is_kernel(best.pattern, best.gain):
                self._take(best.pattern)
            else:
                self.small.append(best.pattern)
                self._claim(best.pattern)

    def _left(self) -> set[int]:
        """The nodes that are in no pattern and could be."""
        taken = self._taken()
        return {n.id for n in self.graph.nodes if n.id not in taken and self._is_candidate(n.id)}

    def _taken(self) -> set[int]:
        return {i for p in (*self.loops, *self.chosen, *self.small) for i in p.nodes}

    def _reaches(self) -> Reach:
        return Reach(self.graph, [p.nodes for p in (*self.loops, *self.chosen, *self.small)])

    def _is_candidate(self, i: int) -> bool:
        node = self.graph[i]
        return not is_free(node) and reason_unsupported(self.graph, node) is None

    def _is_worth(self, pattern: Pattern, gain: Gain) -> bool:
        if not fits_a_block(self.graph, pattern, self.device):
            return False
        if self._finishes(pattern):
            return True
        if self._is_kernel(pattern, gain):
            return gain.seconds > 0
        if self._crossed(pattern):  # Two steps in place of XLA's one kernel.
            return False
        return gain.memory >= 0 and not scattered_bytes(self.graph, pattern)

    def _is_kernel(self, pattern: Pattern, gain: Gain) -> bool:
        """Whether a pattern is worth a launch of its own: it does the work of several of XLA's kernels."""
        return gain.merged > 1 or self._finishes(pattern)

    def _finishes(self, pattern: Pattern) -> bool:
        """Whether the pattern holds the last step of a reduction across rows, which is a kernel of its own making."""
        graph = self.graph
        return any(graph[o].op == PARTIAL for i in pattern.nodes if graph[i].op == "reduce" for o in graph[i].operands)

    def _next(self, seeds_of: SeedsOf, best_first: bool) -> _Candidate | None:
        while True:
            best: _Candidate | None = None
            for seed in seeds_of(self.graph, self._free, self.device):
                found = self._found.get((seed.node, seed.binding)) or self._grow(seed)
                if found.gain is not None and (
                    best is None or best.gain is None or found.gain.seconds > best.gain.seconds
                ):
                    best = found
                    if not best_first:
                        break
            if best is None or best.version == self._version:
                return best
            self._grow(best.seed)

    def _grow(self, seed: Seed) -> _Candidate:
        for known in self._regions:
            if known.rows == seed.rows and known.bound.get(seed.node) == seed.binding:
                candidate = replace(known.candidate, seed=seed)
                self._found[seed.node, seed.binding] = candidate
                return candidate
        bound = region.bind(self.graph, seed.node, seed.binding, seed.rows, self._free)
        pattern = region.form(self.graph, bound, seed.rows, self._free, self._reach)
        gain = evaluate(self.graph, self.origins, pattern, self.device) if pattern else None
        if pattern is not None and gain is not None and not self._is_worth(pattern, gain):
            gain = None
        candidate = _Candidate(seed, frozenset(bound), pattern, gain, self._version)
        self._found[seed.node, seed.binding] = candidate
        self._regions.append(_Region(seed.rows, bound, candidate))
        return candidate

    def _claim(self, pattern: Pattern) -> None:
        """Takes a pattern's nodes out of what is left, and forgets what had been grown over them."""
        self._free -= pattern.nodes
        self._reach = self._reach.contracted(pattern.nodes)
        self.origins = Origins(self.graph, self._taken())
        self._version += 1
        self._found = {k: c for k, c in self._found.items() if not c.reached & pattern.nodes}
        self._regions = []

    def _take(self, pattern: Pattern) -> None:
        """Adds a pattern; where reductions cross its rows, rewrites the graph first."""
        users = {u for i in (*pattern.nodes, *pattern.inputs) for u in self.graph.users[i]} & self._free
        mixed = rewrite.mixed_reductions(self.graph, dict(pattern.bindings), users)
        if mixed:
            graph, ids = rewrite.inside_first(self.graph, mixed)
            self._move(graph, ids)
            return
        cross = self._crossed(pattern)
        if cross:
            blocks = partial_blocks(pattern.rows, self.device)
            graph, ids, first = rewrite.in_two_steps(self.graph, cross, blocks)
            self._move(graph, ids)
            nodes = frozenset(first[i] if i in cross else ids[i] for i in pattern.nodes)
            pattern = Pattern(
                nodes,
                pattern.rows,
                {ids[i]: b for i, b in pattern.bindings.items()},
                region.inputs_of(graph, nodes),
                region.outputs_of(graph, nodes),
                blocks,
            )
        self.chosen.append(pattern)
        self._claim(pattern)

    def _crossed(self, pattern: Pattern) -> set[int]:
        """The pattern's reductions across its rows."""
        return {i for i in pattern.nodes if i not in pattern.bindings and self.graph[i].op == "reduce"}

    def _move(self, graph: Graph, ids: dict[int, int]) -> None:
        """Continues on a rewritten graph."""

        def moved(p: Pattern) -> Pattern:
            return replace(
                p,
                nodes=frozenset(ids[i] for i in p.nodes),
                bindings={ids[i]: b for i, b in p.bindings.items()},
                inputs=tuple(ids[i] for i in p.inputs),
                outputs=tuple(ids[i] for i in p.outputs),
                team=p.team and p.team.renumbered(ids),
            )

        self.graph = graph
        self.chosen = [moved(p) for p in self.chosen]
        self.small = [moved(p) for p in self.small]
        self.loops = [moved(p) for p in self.loops]
        self.refused = {ids[i]: reason for i, reason in self.refused.items()}
        self._free = self._left()
        self._reach = self._reaches()
        self.origins = Origins(graph, self._taken())
        self._version += 1
        self._found = {}
        self._regions = []


def partial_blocks(rows: int, device: Device) -> int:
    """Blocks over which a kernel with cross-row reductions runs: enough to fill the device, few enough that partial
    results stay small.
    """
    if device.kind == "cpu":
        # Sums of few rows each are accurate; partial results of every 32nd row's size cost little.
        return max(1, min(-(-rows // 4), max(4 * device.multiprocessors, min(-(-rows // 32), 1024))))
    return max(1, min(-(-rows // 4), 2 * device.multiprocessors))


def _reduction_seeds(graph: Graph, free: set[int], device: Device) -> Iterator[Seed]:
    """For each reduction: rows are what it keeps; or, where that is little, all there is to reduce (a cross-row
    reduction).
    """
    seen: set[tuple[int, Binding]] = set()
    for i in sorted(free):
        node = graph[i]
        if node.op not in ("reduce",):
            continue
        first = graph[node.operands[0]]
        kept = [d for d in range(len(first.tensor.dims)) if d not in node.attributes["dimensions"]]
        dims = first.tensor.dims
        rows = prod(dims[d] for d in kept)
        operand_binding = rows_of(dims, kept)
        result = tuple(operand_binding[d] for d in kept)
        candidates = [Seed(i, result, rows)]
        if rows > 1 and len(kept) > 1 and dims[kept[-1]] > 1:
            outer = prod(dims[d] for d in kept[:-1])
            if outer > 1:
                coarse = rows_of(dims, kept[:-1])
                candidates.append(Seed(i, tuple(coarse[d] for d in kept), outer))
        if first.id in free and rows * 256 < first.tensor.size:
            reduced = [d for d in range(len(dims)) if d not in kept]
            candidates.append(Seed(first.id, rows_of(dims, reduced), prod(dims[d] for d in reduced)))
        for seed in candidates:
            if (seed.node, seed.binding) not in seen:
                seen.add((seed.node, seed.binding))
                yield seed


def _elementwise_seeds(graph: Graph, free: set[int], device: Device) -> Iterator[Seed]:
    """Every value is its own set of rows: thread composition."""
    ordered = sorted(free, key=lambda i: -node_bytes(graph[i]))
    for i in ordered:
        node = graph[i]
        if isinstance(node.type, TensorType) and node.op not in ("reduce", "get-tuple-element", PARTIAL, "broadcast"):
            yield Seed(i, rows_of(node.type.dims, range(len(node.type.dims))), node.type.size)


def _cuts(graph: Graph, kernels: tuple[tuple[Pattern, ...], ...], loops: Mapping[int, str]) -> tuple[Cut, ...]:
    """Why each node outside all kernels is there."""
    inside = {i for kernel in kernels for p in kernel for i in p.nodes}
    products = {n.kernel for n in graph.nodes if n.kernel and n.op in ("dot", "convolution")}
    found: list[Cut] = []
    for node in graph.nodes:
        if node.id in inside or node.op in ("parameter", "constant", "iota", "get-tuple-element", "tuple"):
            continue
        reason = loops.get(node.id) or reason_unsupported(graph, node)
        whose = "part of the kernel of a matrix product" if node.kernel in products else None
        found.append(Cut(node.id, reason or whose or "XLA already makes one kernel of it and its neighbours"))
    return tuple(found)
