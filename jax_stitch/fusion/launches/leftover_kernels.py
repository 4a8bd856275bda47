"""What a planner has left to XLA, as patterns: each of XLA's kernels, or what is still needed of one.

By itself such a kernel is what XLA runs anyway; packed with others, or as a phase of their launch, it saves its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from jax_stitch.analysis import spread
from jax_stitch.analysis.binding import rows_of
from jax_stitch.analysis.maps import MOVES
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.reach import Reach
from jax_stitch.analysis.sizes import is_of_one_number, node_bytes
from jax_stitch.analysis.support import is_rematerializable, reason_unsupported
from jax_stitch.devices import Device
from jax_stitch.fusion import region
from jax_stitch.fusion.delta_evaluator import XlaKernels, effective_bytes, evaluate, fits_a_block
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.operations import ELEMENTWISE

LONG = 24
"""Operations on scalars that a total is made of, such as the norm of all of a model's gradients: more are done once,
not by each thread of all that read it."""


def worth_packing(
    graph: Graph, patterns: Sequence[Pattern], refused: Collection[int], read: Collection[int], device: Device
) -> list[Pattern]:
    """Return patterns for all of XLA's kernels that ``patterns`` leave, where as parts of another launch they lose no
    more than the launch of their own that they save. Kernels with a node of ``refused`` stay with XLA. ``read`` is what
    ``patterns`` read rather than compute for themselves.
    """
    covered = {i for p in patterns for i in p.nodes}
    kernels: dict[str, list[int]] = defaultdict(list)
    for n in graph.nodes:
        if n.kernel and n.id not in covered and not is_rematerializable(n):
            kernels[n.kernel].append(n.id)
    reach, origins = Reach(graph, [p.nodes for p in patterns]), XlaKernels(graph, covered)
    packable: list[Pattern] = []
    for name, members in kernels.items():
        if any(i in refused for i in members):
            continue
        parts = as_patterns(graph, _needed(graph, name, members, covered, read), reach, device)
        gains = [evaluate(graph, origins, _less_numbers(graph, p), device) for p in parts]
        # What a total costs, all that read it would pay.
        if sum(g.memory - g.penalty for g in gains) >= -device.target.launch_seconds or long_totals(graph, members):
            packable += parts
            for p in parts:
                reach = reach.contracted(p.nodes)
    return packable


def _less_numbers(graph: Graph, pattern: Pattern) -> Pattern:
    """Return a pattern less the inputs that are the same number everywhere: it has these for itself."""
    return replace(pattern, inputs=tuple(i for i in pattern.inputs if not is_of_one_number(graph, i)))


def _needed(
    graph: Graph, kernel: str, members: Sequence[int], covered: Collection[int], read: Collection[int]
) -> set[int]:
    """Return the members that others than ``covered`` nodes read, or these rather ``read``, that are results, that none
    can make for itself, or that none had better; and what those are made of.
    """
    results, needed, totals = graph.result_set, set[int](), long_totals(graph, members)
    for i in reversed(members):
        users = [
            u for u in graph.users[i] if graph[u].kernel != kernel and (u not in covered or i in totals or i in read)
        ]
        if i in results or users or graph[i].op == "reduce" or any(u in needed for u in graph.users[i]):
            needed.add(i)
    return needed


def long_totals(graph: Graph, members: Collection[int]) -> set[int]:
    """Return those of the members that are scalars made by many operations on scalars."""
    among: dict[int, frozenset[int]] = {}
    totals: set[int] = set()
    for i in sorted(members):
        node = graph[i]
        if node.op in ELEMENTWISE and isinstance(node.type, TensorType) and node.tensor.size == 1:
            among[i] = frozenset({i}).union(*(among.get(o, frozenset()) for o in node.operands))
            if len(among[i]) > LONG:
                totals.add(i)
    return totals


def as_patterns(graph: Graph, members: Collection[int], reach: Reach, device: Device) -> list[Pattern]:
    """Return one of XLA's kernels as patterns whose rows are the elements of a value, or what a reduction keeps: as few
    as there can be. None where those leave some of it out.
    """
    for i in members:
        if graph[i].op not in ELEMENTWISE | MOVES | {"reduce"} or reason_unsupported(graph, graph[i]) is not None:
            return []
    left, patterns = set(members), list[Pattern]()
    while left:
        best: Pattern | None = None
        for pattern in _grown(graph, left, reach, device):
            rank = len(pattern.nodes), -effective_bytes(graph, pattern)
            if best is None or rank > (len(best.nodes), -effective_bytes(graph, best)):
                best = pattern
        if best is None:  # The same number everywhere is what all that read it have for themselves.
            return patterns if all(is_of_one_number(graph, i) for i in left) else []
        patterns.append(best)
        left -= best.nodes
        if left:
            reach = reach.contracted(best.nodes)
    return patterns


def _grown(graph: Graph, members: Collection[int], reach: Reach, device: Device) -> Iterator[Pattern]:
    """Yield the largest patterns among ``members``, of every shape that a value has: reductions first, then the
    largest. Of several values of one shape the rows may be those of the first or of the last, which may lie in other
    orders.
    """
    shapes: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i in sorted(members, key=lambda i: (graph[i].op != "reduce", -node_bytes(graph[i]), i)):
        if isinstance(graph[i].type, TensorType):
            shapes[graph[i].tensor.dims].append(i)
    for dims, seed in ((dims, i) for dims, alike in shapes.items() for i in dict.fromkeys((alike[0], alike[-1]))):
        rows = graph[seed].tensor.size
        bound = spread.bind(graph, seed, rows_of(dims, range(len(dims))), rows, members)
        pattern = region.form(graph, bound, rows, members, reach, device)
        if pattern is None or not fits_a_block(graph, pattern, device):
            continue
        if not any(graph[i].op == "reduce" and i not in pattern.bindings for i in pattern.nodes):
            yield pattern
