"""Products outside loops whose results are shared out over the cores of a CPU: each row of a kernel computes some of
their rows or columns, with what is computed from the same elements (the epilogue).

A product may be of any size: a row keeps its own results alone, and reads the factors where they lie. Straight code,
by contrast, keeps all of its arrays in one core's cache (``straight.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType

from msgspec import Struct

from jax_stitch.analysis.binding import Binding, Factor, inner, inner_sizes
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.team import Stacked, TeamLoop
from jax_stitch.analysis.results import Results
from jax_stitch.analysis.sizes import is_of_one_number, node_bytes
from jax_stitch.analysis.spread import bind
from jax_stitch.analysis.support import is_rematerializable, reason_unsupported
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, Node
from jax_stitch.ir.indices import const
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.kernel.product_blocks import TYPES
from jax_stitch.loops.cost.team_cost import straight_team_seconds
from jax_stitch.loops.straight import body_of, counts, depths, turned_factors
from jax_stitch.loops.teams.sums_apart import sums_apart
from jax_stitch.loops.teams.team import NotForTeams, check, intermediates_of

LEAST_PLACES = 16
"""The fewest neighbouring elements of a result that a row computes: they are a line of memory."""

PARTS = (16, 32, 64, 128, 256)
"""About the places of a row along a dimension that are tried, beside equal shares for the cores."""

HELD = 4
"""The part of a core's own cache, one in so many, that factors which are read again may fill: what they are multiplied
with goes through it too. Measured: with half of it a product of 128 rows takes 1.5 times as long.
"""

_VIEWS = frozenset({"broadcast", "reshape", "slice", "transpose"})
"""Moves that every reader may repeat."""


class _Products(Struct, frozen=True):
    """Products of equal shape that wait for the same, and what is computed from their elements."""

    nodes: frozenset[int]
    copies: frozenset[int]
    """Views of what the products read that others read too."""


def product_patterns(graph: Graph, taken: Sequence[Pattern], device: Device) -> list[Pattern]:
    """Return a pattern for each product, or group of products that are added and the like, that is in none of the
    patterns ``taken``; none where teams are more than one thread.
    """
    if not device.target.runs_sweeps_in_turn:
        return []
    groups = _groups(graph, [p.nodes for p in taken])
    found = (_patterns.get(graph, (g, device), partial(_pattern, graph, g, device)) for g in groups)
    return [p for p in found if p is not None]


_patterns: Results[tuple[_Products, Device], Pattern | None] = Results()


def _groups(graph: Graph, taken: Sequence[Collection[int]]) -> Iterator[_Products]:
    """Yield the products of a graph with their epilogues. None of them waits for another that waits for it: a group
    reads nothing but what is there before its products are.
    """
    inside = {i for nodes in taken for i in nodes}
    free = [n for n in graph.nodes if n.id not in inside and not is_rematerializable(n)]
    held = {n.id for n in free if (n.op in ELEMENTWISE or n.op in _VIEWS) and reason_unsupported(graph, n) is None}
    after = depths(graph, held, taken)
    for first, members in _joined(graph, free, held, after).items():
        nodes, views = set(members), set[int]()
        waiting = [o for i in members for o in graph[i].operands]
        while waiting:
            o = waiting.pop()
            if o in nodes or o in views or graph[o].op not in _VIEWS:
                continue
            if is_of_one_number(graph, o) or (o in held and after[o] <= after[first]):
                views.add(o)
                waiting += graph[o].operands
        alone = _read_inside(graph, views - inside, nodes)
        yield _Products(frozenset(nodes | alone), frozenset(views - alone))


def _joined(
    graph: Graph, free: Sequence[Node], held: Collection[int], after: Mapping[int, int]
) -> dict[int, list[int]]:
    """Return the products, each with all that is computed from its elements and from what is there before it; those
    that meet are one. The first product of each is its key.
    """
    group = {n.id: n.id for n in free if _is_product(graph, n)}

    def first(i: int) -> int:
        while group[i] != i:
            i = group[i]
        return i

    for node in free:
        if node.id not in held or node.op in _VIEWS - {"reshape"}:
            continue
        members = [o for o in node.operands if o in group and graph[o].tensor.size == node.tensor.size]
        roots = sorted({first(o) for o in members})
        others = [o for o in node.operands if o not in members and not is_rematerializable(graph[o])]
        level = min((after[r] for r in roots), default=0)
        if any(after[o] + counts(graph, o, held) > level for o in others):
            continue
        if len({(after[r], graph[r].tensor.dims) for r in roots}) == 1:
            for i in (*roots[1:], node.id):
                group[i] = roots[0]
    joined: dict[int, list[int]] = {}
    for i in sorted(group):
        joined.setdefault(first(i), []).append(i)
    return joined


def _read_inside(graph: Graph, views: Collection[int], nodes: Collection[int]) -> set[int]:
    """Return the views that nothing but nodes and such views read."""
    alone = set[int]()
    for i in sorted(views, reverse=True):
        if i not in graph.result_set and all(u in nodes or u in alone for u in graph.users[i]):
            alone.add(i)
    return alone


def _is_product(graph: Graph, node: Node) -> bool:
    if node.op != "dot" or node.attributes.get("algorithm") is not None:
        return False
    tensors = [node.tensor, *(graph[o].tensor for o in node.operands)]
    return len({t.dtype for t in tensors}) == 1 and node.tensor.dtype in TYPES and all(t.size for t in tensors)


def _pattern(graph: Graph, products: _Products, device: Device) -> Pattern | None:
    """Return the pattern that is estimated fastest; None where no row computes its part by itself."""
    nodes = sorted(products.nodes | products.copies)
    outputs = [
        i
        for i in sorted(products.nodes)
        if i in graph.result_set or any(u not in products.nodes for u in graph.users[i])
    ]
    layouts = _layouts(graph, nodes, outputs, device)
    best = min(layouts, key=lambda loop: straight_team_seconds(loop, device), default=None)
    if best is None:
        return None
    inputs = tuple(sorted(set(best.arrays.values())))
    return Pattern(products.nodes, best.rows, {}, inputs, tuple(outputs), copies=products.copies, loop=best)


def _layouts(graph: Graph, nodes: Sequence[int], outputs: Sequence[int], device: Device) -> Iterator[TeamLoop]:
    """Yield the ways to share out products over rows."""
    body, arrays = body_of(graph, nodes, outputs, copies=True)
    seed = next(n for n in body.nodes if n.op == "dot")
    kept, apart = intermediates_of(body, body.results, device, {})
    turned = turned_factors(body)
    candidates = {n.id for n in body.nodes if n.op != "parameter"}
    for rows, binding in _splits(seed, device):
        bound = bind(body, seed.id, binding, rows, candidates)
        if any(i not in bound for i in (*kept, *body.results)):
            continue
        cached = {i: bound[i] for i in kept} | {i: bound.get(i, _whole(body[i])) for i in turned}
        if HELD * sum(_bytes(body[i], cached[i]) for i in turned) > device.shared_per_block_optin:
            continue
        stacked = tuple(
            Stacked(made, tuple(const(0) for _ in graph[i].tensor.dims), i, bound[made])
            for made, i in zip(body.results, outputs, strict=True)
        )
        bindings = MappingProxyType(dict(sorted(cached.items())))
        loop = TeamLoop(body, 1, rows, (), stacked, arrays, bindings, apart=apart, in_pieces=True)
        try:
            check(loop)
        except NotForTeams:
            continue
        yield sums_apart(loop, device)


def _splits(product: Node, device: Device) -> Iterator[tuple[int, Binding]]:
    """Yield ways to divide one dimension of a product's result: the number of rows, and their parts."""
    dims = product.tensor.dims
    yield 1, _whole(product)
    for d, size in enumerate(dims):
        least = LEAST_PLACES if d == len(dims) - 1 else 1
        parts = [n for n in range(least, size // 2 + 1) if size % n == 0]
        nearest = (min(parts, key=lambda n: abs(n - wanted), default=size) for wanted in PARTS)
        each = [size // k for k in (device.multiprocessors, 2 * device.multiprocessors) if size // k in parts]
        for part in sorted({*each, *nearest} - {size}):
            factors = (Factor(size // part, 1), Factor(part)) if part > 1 else (Factor(size, 1),)
            yield size // part, tuple(factors if k == d else inner(n) for k, n in enumerate(dims))


def _whole(node: Node) -> Binding:
    return tuple(map(inner, node.tensor.dims))


def _bytes(node: Node, binding: Binding) -> int:
    """Return the bytes of a row's part of a value."""
    return node_bytes(node) // node.tensor.size * prod(inner_sizes(binding))
