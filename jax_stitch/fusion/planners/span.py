"""Work/span layering (2018 paper, section 3): layers by the distance from the results, fused between library calls.

Each computation of a loop or branch is planned in its own frame, by itself. From the results up: the roots of a layer
each take in producers, layer by layer, up to the next layer with a library call (Algorithm 1), as far as some split of
the root suits all of them. Then the kernels of a layer's roots that are fine-grained share launches, as long as their
footprint stays small (ElementwiseFusion).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from jax_stitch.analysis.binding import rows_of
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.reach import Reach
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_library
from jax_stitch.devices import Device
from jax_stitch.fusion.launches.buffers import buffers_fit
from jax_stitch.fusion.launches.packing import worthwhile
from jax_stitch.fusion.outcome import Outcome
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.search import Candidate, Search
from jax_stitch.fusion.seeds import Seed
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.loops.thread_loops import ThreadLoops

FINE_SECONDS = 10e-6
"""Kernels shorter than this are worth packing with others of their layer."""

FOOTPRINT_SECONDS = 100e-6
"""A packed kernel moves at most the bytes that memory moves in this time."""


def choose(graph: Graph, loops: ThreadLoops, device: Device, patience: Patience = ENDLESS) -> Outcome:
    """Return patterns of one root each, in groups that share a launch."""
    search = Search(graph, device, loops)
    spans = work_spans(graph)
    library = sorted({spans[n.id] for n in graph.nodes if is_library(graph, n)})
    layers: dict[int, list[int]] = defaultdict(list)
    for i in sorted(search.free):
        layers[spans[i]].append(i)
    layer_of: list[tuple[int, Pattern]] = []
    for span in sorted(layers):
        roof = next((s for s in library if s > span), max(layers) + 1)
        for i in layers[span]:
            if i in search.free and isinstance(graph[i].type, TensorType):
                candidate = _grown(search, i, spans, roof)
                if candidate is not None and candidate.pattern is not None:
                    search.take(candidate)
                    layer_of.append((span, candidate.pattern))
    groups = _packed(search, layer_of)
    small = set(map(id, search.small))
    kernels = worthwhile(groups, Search(graph, device, loops).origins, small)
    return Outcome(graph, kernels, loops.patterns, loops.refused, search.saved, search.here)


def work_spans(graph: Graph) -> tuple[int, ...]:
    """Return, for each node, the length of the longest way to a result, or to a value that nobody reads."""
    spans = [0] * len(graph)
    for node in reversed(graph.nodes):
        spans[node.id] = max((spans[u] + 1 for u in graph.users[node.id]), default=0)
    return tuple(spans)


def _grown(search: Search, root: int, spans: Sequence[int], roof: int) -> Candidate | None:
    """Return the pattern of a root under the split that saves most; ``None`` where it is not worth taking."""
    best: Candidate | None = None
    fused = _fused(search, root, spans, roof)
    for seed in _splits(search.graph, root):
        candidate = search.within(fused, seed, may_share=True)
        if candidate.pattern is None or candidate.gain is None or root not in candidate.pattern.nodes:
            continue
        if search.crossed(candidate.pattern):  # Needs another kernel to finish it.
            continue
        if best is None or best.gain is None or candidate.gain.seconds > best.gain.seconds:
            best = candidate
    return best


def _fused(search: Search, root: int, spans: Sequence[int], roof: int) -> set[int]:
    """Return the instructions between the root and the roof that have a fused user, and that were not given up
    (Algorithm 1).

    Whether a split suits them is decided when the pattern is formed, which leaves out what it does not suit.
    """
    graph = search.graph
    fused, waiting = {root}, set(graph[root].operands)
    while waiting:
        i = min(waiting, key=lambda w: (spans[w], w))
        waiting.discard(i)
        if i not in search.free or spans[i] >= roof:
            continue
        # Users in the root's layer or below it cannot come before anything that is fused.
        if all(u in fused or spans[u] <= spans[root] for u in graph.users[i]):
            fused.add(i)
            waiting.update(graph[i].operands)
    return fused


def _splits(graph: Graph, root: int) -> Iterator[Seed]:
    """Yield the paper's schedules of a root: its first or its last dimensions cover the rows (Row, Column)."""
    dims = graph[root].tensor.dims
    remaining = [d for d, size in enumerate(dims) if size > 1]
    seen = set()
    for k in range(len(remaining), -1, -1):
        for rows in (tuple(remaining[:k]), tuple(remaining[len(remaining) - k :])):
            if rows not in seen:
                seen.add(rows)
                size = 1
                for d in rows:
                    size *= dims[d]
                yield Seed(root, rows_of(dims, rows), size)


def _packed(search: Search, layer_of: Sequence[tuple[int, Pattern]]) -> list[list[Pattern]]:
    """Pack fine-grained patterns with roots of the same layer and rows, up to the largest footprint."""
    device = search.device
    reach = Reach(search.graph, [*[p.nodes for p in search.loops], *[p.nodes for _, p in layer_of]])
    groups: list[list[Pattern]] = []
    open_groups: dict[tuple[int, int], list[Pattern]] = {}
    for span, pattern in layer_of:
        group = open_groups.get((span, pattern.rows), [])
        together = [*group, pattern]
        nodes = {i for p in group for i in p.nodes}
        packs = (
            group
            and device.target.packs_launches
            and _seconds(search, [pattern]) < FINE_SECONDS
            and _seconds(search, together) < FOOTPRINT_SECONDS
            and buffers_fit(together, device)
            and not reach.connected(nodes, pattern.nodes)
        )
        if packs:
            group.append(pattern)
            reach = reach.contracted(nodes | pattern.nodes)
        else:
            group = [pattern]
            groups.append(group)
            if _seconds(search, group) < FINE_SECONDS:
                open_groups[span, pattern.rows] = group
    return groups


def _seconds(search: Search, group: Sequence[Pattern]) -> float:
    """Return the time in which memory moves what a group reads and writes."""
    moved = sum(node_bytes(search.graph[i]) for p in group for i in (*p.inputs, *p.outputs))
    return moved / search.device.memory_bandwidth
