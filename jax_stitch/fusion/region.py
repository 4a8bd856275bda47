"""Growth of a region: all operations around a seed that are local under the seed's split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush
from math import prod

from jax_stitch.analysis import copies
from jax_stitch.analysis.accesses import PARTIAL, Element
from jax_stitch.analysis.binding import Binding, inner_sizes, to_operand
from jax_stitch.analysis.inputs_outputs import inputs_of, outputs_of
from jax_stitch.analysis.locality import Inside, NotLocal, elements, too_often, walk_row
from jax_stitch.analysis.maps import MOVES
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.reach import Reach, bits, members_of
from jax_stitch.analysis.results import Results
from jax_stitch.analysis.scans import misplaced
from jax_stitch.analysis.support import ROOTS, is_rematerializable
from jax_stitch.devices import Device
from jax_stitch.graph.combiners import neutral_value
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.indices.variables import row_index
from jax_stitch.ir.operations import ELEMENTWISE, HEAVY

SHORT_TEXT = 1000
"""The most statements of a text that compilers take under a second for, even if many of them recompute a value."""

_reductions_of: Results[None, Mapping[int, tuple[int, ...]]] = Results()
"""The reductions of each value."""


def cross_row_reductions(
    graph: Graph, bound: dict[int, Binding], rows: int, candidates: Collection[int]
) -> dict[int, Binding]:
    """Return the operands' bindings of the reductions of bound values over all rows and over no place inside a row.
    Each is computed as partial results per block, which another phase or kernel combines.
    """
    of = _reductions_of.get(graph, None, lambda: _reductions(graph))
    reductions: dict[int, Binding] = {}
    for i in sorted(i for o in (bound if len(bound) < len(of) else of) if o in bound for i in of.get(o, ())):
        node = graph[i]
        if i in bound or i not in candidates:
            continue
        if neutral_value(node.graphs["to_apply"], node.tensor.dtype) is None:
            continue  # A block without rows needs a neutral value to start from.
        operand = bound[node.operands[0]]
        dims = node.attributes["dimensions"]
        reduced = [f for d in dims for f in operand[d]]
        remaining = [f for d, dim in enumerate(operand) if d not in dims for f in dim]
        over_rows = prod(f.size for f in reduced if f.stride is not None)
        if (
            over_rows == rows
            and all(f.stride is not None for f in reduced)
            and all(f.stride is None for f in remaining)
        ):
            reductions[i] = operand
    return reductions


def _reductions(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Return the reductions of each value."""
    of: dict[int, tuple[int, ...]] = {}
    for n in graph.nodes:
        if n.op == "reduce" and len(n.operands) == 2:
            of[n.operands[0]] = (*of.get(n.operands[0], ()), n.id)
    return of


def form(
    graph: Graph,
    bound: dict[int, Binding],
    rows: int,
    candidates: Collection[int],
    reach: Reach,
    device: Device,
    *,
    whole: bool = False,
) -> Pattern | None:
    """Return the largest pattern of bound candidates that is convex, local, and writes only values covering all rows.

    Values that it would compute at too many places for each of its own are left for another kernel to write. With
    ``whole`` only the pattern of all candidates counts: return None as soon as one of them has to be dropped.
    """
    members = {i for i in bound if i in candidates}
    cross = cross_row_reductions(graph, bound, rows, candidates)
    members |= set(cross)
    members -= set(members_of(reach.all_after(cross) & bits(members)))
    by_place = {i for i in members if graph[i].op in ROOTS and i in bound and prod(inner_sizes(bound[i])) > 1}
    scanned = misplaced(graph, members, by_place.union(cross))
    members -= scanned | set(members_of(reach.all_after(scanned) & bits(members)))
    _absorb(graph, members, candidates)
    if whole and not _stay(graph, members, candidates, bound, cross, rows, reach):
        return None
    while members:
        before = len(members)
        members = reach.convex_part(members)
        members -= _not_local(graph, members, bound, cross, rows, reach, device)
        _trim(graph, members, bound, cross, rows)
        if len(members) == before:
            break
        if whole:
            return None
    cross = {i: b for i, b in cross.items() if i in members}
    outputs = outputs_of(graph, members)
    if not outputs:
        return None
    return Pattern(
        frozenset(members),
        rows,
        {i: b for i, b in bound.items() if i in members or not members.isdisjoint(graph.users[i])},
        inputs_of(graph, members),
        outputs,
    )


def _stay(
    graph: Graph,
    members: set[int],
    candidates: Collection[int],
    bound: dict[int, Binding],
    cross: dict[int, Binding],
    rows: int,
    reach: Reach,
) -> bool:
    """Return whether members are all candidates, and the cheap checks (convexity, trimming) drop none of them."""
    if len(members) != len(candidates) or len(reach.convex_part(members)) != len(members):
        return False
    trimmed = set(members)
    _trim(graph, trimmed, bound, cross, rows)
    return len(trimmed) == len(members)


def _absorb(graph: Graph, members: set[int], candidates: Collection[int]) -> None:
    """Add cheap values that do not depend on the row and that only members read: each row recomputes them."""
    results, nodes, users = graph.result_set, graph.nodes, graph.users
    waiting = [-o for o in {o for i in members for o in nodes[i].operands} - members]
    heapify(waiting)
    last = 1  # No node yet.
    while waiting:  # In descending order: the readers of a value are added before it, or not at all.
        i = -heappop(waiting)
        if -i == last or i not in candidates or i in results or not members.issuperset(users[i]):
            continue
        last, node = -i, nodes[i]
        if node.op in ("reduce", "reduce-window", "sort", "get-tuple-element", PARTIAL) or not isinstance(
            node.type, TensorType
        ):
            continue
        if node.type.size == 1 or node.op not in HEAVY:
            members.add(i)
            for o in set(node.operands) - members:
                heappush(waiting, -o)


def _not_local(
    graph: Graph,
    members: set[int],
    bound: dict[int, Binding],
    cross: dict[int, Binding],
    rows: int,
    reach: Reach,
    device: Device,
) -> set[int]:
    """Return the members whose computation would read values of another row, and their dependents; or, where there are
    none, the members computed too often.
    """
    cached = {i for i in members if i in bound and is_cached(graph, graph[i])}
    row = row_index(rows)
    inside = bits(members)
    bad: set[int] = set()
    held = Inside(graph, members, bound, cached, row)
    seen: set[Element] = set()
    times: Counter[int] = Counter()
    roots: list[Element] = []
    for i in sorted({*outputs_of(graph, members), *(m for m in members if graph[m].op in ROOTS)}):
        node = graph[i]
        if i in bad:
            continue
        try:
            if node.op == "reduce":
                operand_binding = cross.get(i) or to_operand(graph, node, 0, bound[i])
                assert operand_binding is not None
                index, _ = elements(operand_binding, row)
                starts = [(operand, index) for operand in node.operands[: len(node.operands) // 2]]
                _check_initial_values(held, node)
            elif node.op == "sort":
                starts = [(operand, elements(bound[i], row)[0]) for operand in node.operands]
            elif i in bound and i not in cached:
                starts = [(i, elements(bound[i], row)[0])]
            else:
                continue
            for start in starts:
                seen.update(walk_row(held, start, seen=seen, times=times).computed)
            roots += starts
        except NotLocal:
            bad.add(i)
            bad |= set(members_of(reach.all_after([i]) & inside))
    return bad or _too_often(graph, times, device) or _too_long(graph, roots, seen)


def _check_initial_values(held: Inside, reduce: Node) -> None:
    """Raise NotLocal where the initial value of a reduction depends on another reduction or sort of the same kernel."""
    for o in reduce.operands[len(reduce.operands) // 2 :]:
        walked = walk_row(held, (o, ()))
        if walked.cached or any(held.graph[i].op in ROOTS for i, _ in walked.computed):
            raise NotLocal(o, reduce.id)


def _too_often(graph: Graph, times: Mapping[int, int], device: Device) -> set[int]:
    light, heavy = device.target.most_copies
    repeated = set[int]()
    for i, count in times.items():
        node = graph[i]
        computes = node.op not in MOVES and not is_rematerializable(node)
        if too_often(node, count) or (computes and count > (heavy if node.op in HEAVY else light)):
            repeated.add(i)
    return repeated


def _too_long(graph: Graph, roots: Collection[Element], computed: Collection[Element]) -> set[int]:
    """Return the members that the text of the kernel would compute in too many places."""
    elements_of = Counter(i for i, _ in computed)
    written = _written(graph, roots, computed)
    if written.total() <= SHORT_TEXT:
        return set()
    return {i for i, times in written.items() if times > elements_of[i] and too_often(graph[i], times)}


def _written(graph: Graph, roots: Collection[Element], computed: Collection[Element]) -> Counter[int]:
    """Return the number of times that the text of a kernel computes each node."""
    counts: Counter[int] = Counter()
    for (i, _), times in copies.counts(graph, roots, computed).items():
        counts[i] += times
    return counts


def copied_too_often(graph: Graph, pattern: Pattern) -> set[int]:
    """Return the nodes that a pattern rematerialises and that its text would compute in too many places."""
    if not pattern.copies:
        return set()
    bindings, row = pattern.bindings, row_index(pattern.rows)
    cached = {i for i in pattern.nodes if i in bindings and is_cached(graph, graph[i])}
    roots: list[Element] = []
    seen: dict[Element, None] = {}
    for i in sorted(pattern.nodes):
        node = graph[i]
        if node.op == PARTIAL or (node.op == "reduce" and i in bindings):
            operand = bindings[node.operands[0]] if node.op == PARTIAL else to_operand(graph, node, 0, bindings[i])
            assert operand is not None
            roots += [(o, elements(operand, row)[0]) for o in node.operands[: len(node.operands) // 2]]
        elif node.op == "sort":
            roots += [(o, elements(bindings[i], row)[0]) for o in node.operands]
        elif i in pattern.outputs and i not in cached and i in bindings:
            roots.append((i, elements(bindings[i], row)[0]))
    held = Inside(graph, pattern.inside, bindings, cached, row)
    times: Counter[int] = Counter()
    for root in roots:
        seen |= dict.fromkeys(walk_row(held, root, seen=seen, times=times).computed)
    written = _written(graph, roots, seen)
    if written.total() <= SHORT_TEXT:
        written = times
    return {i for i in pattern.copies if too_often(graph[i], written[i]) and not _as_quick_as_read(graph, pattern, i)}


def _as_quick_as_read(graph: Graph, pattern: Pattern, i: int) -> bool:
    """Return whether a node is a light operation on one input: recomputed or read, it costs one load per place."""
    arrays = {o for o in graph[i].operands if not is_rematerializable(graph[o])}
    return graph[i].op in ELEMENTWISE and graph[i].op not in HEAVY and len(arrays) == 1 and arrays <= {*pattern.inputs}


def is_cached(graph: Graph, node: Node) -> bool:
    """Return whether a kernel always caches a value instead of recomputing it: results of reductions and sorts."""
    if node.op == "get-tuple-element":
        return True
    return node.op in ROOTS and isinstance(node.type, TensorType)


def _trim(graph: Graph, members: set[int], bound: dict[int, Binding], cross: dict[int, Binding], rows: int) -> None:
    """Drop outputs that a kernel must not write: values that do not cover all rows, and broadcasts of smaller ones.
    Drop members without readers, and tuples of which only some parts are members.
    """
    results = graph.result_set
    while True:
        outputs = set(outputs_of(graph, members))
        drop = set()
        for i in members:
            node, users = graph.nodes[i], graph.users[i]
            if (
                (i in outputs and i not in bound and i not in cross)
                or (i in outputs and node.op == "broadcast" and members.isdisjoint(users))
                or (not users and i not in results)
                or (i not in outputs and members.isdisjoint(users))
                or (node.op == "get-tuple-element" and node.operands[0] not in members)
                or (node.op in ROOTS and not isinstance(node.type, TensorType) and not members.issuperset(users))
            ):
                drop.add(i)
        if not drop:
            return
        members -= drop
