"""Straight code as one step of a loop in teams: on a CPU a team is one thread, which goes from sweep to sweep without a
barrier, so that a kernel holds whatever one sweep reads of another.

Between operations that no kernel holds, all that is small enough for a core's cache becomes one kernel: products,
reductions along whatever dimensions, and what stands between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from types import MappingProxyType

from jax_stitch.analysis.binding import inner
from jax_stitch.analysis.contraction import PRODUCTS
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.team import Stacked, TeamLoop
from jax_stitch.analysis.sizes import is_of_one_number, node_bytes
from jax_stitch.analysis.support import is_rematerializable, reason_unsupported
from jax_stitch.analysis.terms import steps_of
from jax_stitch.devices import Device
from jax_stitch.graph.builder import Builder, moved
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.indices import const
from jax_stitch.loops.teams.sums_apart import sums_apart
from jax_stitch.loops.teams.team import NotForTeams, check, intermediates_of
from jax_stitch.util.values import replace

LEAST_LANES, LEAST_USES = 8, 4
"""Of a product's operand that is transposed: its rows or columns, and how often each of its elements is read."""

COPIED_USES = 32
"""Reads of each element of a product's factor from which on a copy of it is read, which lies in one piece: rows of a
matrix lie apart, and where their distance is a power of two a cache holds few of them.
"""

LEAST_KERNELS = 2
"""Kernels of XLA that straight code has to take the place of, if it has no product and nothing taken out of a loop."""


def straight_patterns(
    graph: Graph,
    taken: Sequence[Pattern],
    device: Device,
    may_pay: Callable[[Collection[int], Collection[int]], bool] = lambda nodes, inputs: True,
) -> list[Pattern]:
    """Return patterns of all the straight code that is small enough, where teams are single threads; ``taken`` are
    patterns that stay. Nodes of which what they read says that none ``may_pay`` are not looked at.
    """
    if not device.target.runs_sweeps_in_turn:
        return []
    groups = [p.nodes for p in taken]
    inside = {i for nodes in groups for i in nodes}
    held = {
        n.id for n in graph.nodes if n.id not in inside and not is_rematerializable(n) and _can_hold(graph, n, device)
    }
    patterns: list[Pattern] = []
    for nodes in _between(graph, held, groups):
        kernels = {graph[i].kernel for i in nodes if graph[i].kernel}
        is_enough = len(kernels) >= LEAST_KERNELS or any(_is_long(graph[i]) for i in nodes)
        if not is_enough or not may_pay(nodes, _read_by(graph, nodes)):
            continue
        pattern = _pattern(graph, nodes, taken, device)
        if pattern is not None:
            patterns.append(pattern)
    return patterns


def _read_by(graph: Graph, nodes: Collection[int]) -> set[int]:
    """Return the arrays outside that nodes read."""
    members = set(nodes)
    read = {o for i in nodes for o in graph[i].operands if o not in members}
    return {o for o in read if not is_rematerializable(graph[o])}


def _is_long(node: Node) -> bool:
    """Return whether a node by itself takes XLA long enough: a product, or a sum that was taken out of a loop."""
    return node.op == "dot" or (node.op == "reduce" and not node.kernel)


def is_all_straight(graph: Graph, taken: Sequence[Pattern], device: Device) -> bool:
    """Return whether straight code can hold all that is in none of the patterns ``taken``."""
    if not device.target.runs_sweeps_in_turn:
        return False
    inside = {i for p in taken for i in p.nodes}
    others = (n for n in graph.nodes if n.id not in inside and n.op != "parameter" and not is_rematerializable(n))
    return all(_can_hold(graph, n, device) for n in others)


def _can_hold(graph: Graph, node: Node, device: Device) -> bool:
    if node.op == "parameter":
        return False
    sizes = [t.size for t in (node.type, *(graph[o].type for o in node.operands)) if isinstance(t, TensorType)]
    if sum(sizes) * 4 > device.shared_per_block_optin or 0 in sizes:
        return False
    if node.op == "dot":
        types = {node.tensor.dtype, *(graph[o].tensor.dtype for o in node.operands)}
        return types <= PRODUCTS and node.attributes.get("algorithm") is None
    return reason_unsupported(graph, node) is None


def _between(graph: Graph, held: Collection[int], groups: Sequence[Collection[int]]) -> list[list[int]]:
    """Return the nodes of ``held`` in sets of which none waits for itself: those with as many others one after the
    other before them. Each of ``groups`` is one node to the others.
    """
    after = depths(graph, held, groups)
    limit = dict.fromkeys(held, 0)
    for i in sorted(held, reverse=True):
        # As late as its readers allow, so that what is made for one of them is made there.
        readers = [limit.get(u, after[u]) for u in graph.users[i]]
        stays = i in graph.result_set or not readers or graph[i].op == "get-tuple-element"
        limit[i] = after[i] if stays else max(after[i], min(readers))
    by_depth: dict[int, list[int]] = {}
    for i in sorted(held):
        by_depth.setdefault(limit[i], []).append(i)
    return [by_depth[depth] for depth in sorted(by_depth)]


def depths(graph: Graph, held: Collection[int], groups: Sequence[Collection[int]]) -> dict[int, int]:
    """Return how many nodes that are not held stand one after the other before each node."""
    group_of = {i: k for k, nodes in enumerate(groups) for i in nodes}
    depth = dict.fromkeys(range(len(graph)), 0)
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            members = groups[group_of[node.id]] if node.id in group_of else (node.id,)
            outside = [o for o in node.operands if o not in members]
            before = max((depth[o] + counts(graph, o, held) for o in outside), default=0)
            if before > depth[node.id]:
                assert before <= len(graph), "patterns that wait for each other"
                changed = True
                for i in members:
                    depth[i] = max(depth[i], before)
    return depth


def counts(graph: Graph, i: int, held: Collection[int]) -> int:
    return int(i not in held and graph[i].op != "parameter" and not is_rematerializable(graph[i]))


def _pattern(graph: Graph, nodes: Sequence[int], taken: Sequence[Pattern], device: Device) -> Pattern | None:
    members = set(nodes)
    # A loop reads nothing of an array that it writes all of.
    inputs_of = {i: p.inputs for p in taken for i in p.nodes}
    read = {
        i
        for i in nodes
        if isinstance(graph[i].type, TensorType)
        and (i in graph.result_set or any(u not in members and i in inputs_of.get(u, (i,)) for u in graph.users[i]))
    }
    copies = _made_by_readers(graph, nodes, read)
    outputs = [i for i in nodes if i in read - copies]
    body, arrays = body_of(graph, nodes, outputs)
    intermediates, apart = intermediates_of(body, body.results, device, {})
    cached = {i: tuple(map(inner, body[i].tensor.dims)) for i in sorted({*intermediates, *turned_factors(body)})}
    stacked = tuple(
        Stacked(made, tuple(const(0) for _ in graph[i].tensor.dims), i, tuple(map(inner, graph[i].tensor.dims)))
        for made, i in zip(body.results, outputs, strict=True)
    )
    loop = TeamLoop(body, 1, 1, (), stacked, arrays, MappingProxyType(cached), apart=apart, in_pieces=True)
    touched = sum(node_bytes(graph[i]) for i in (*outputs, *arrays.values()))
    touched += sum(node_bytes(body[i]) for i in cached)
    if touched > device.shared_per_block_optin:
        return None
    try:
        check(loop)
    except NotForTeams:
        return None
    inputs = tuple(sorted(set(arrays.values())))
    own = frozenset(members - copies)
    loop = sums_apart(loop, device)
    return Pattern(own, 1, {}, inputs, tuple(sorted(outputs)), copies=frozenset(copies), loop=loop)


def _made_by_readers(graph: Graph, nodes: Sequence[int], read: Collection[int]) -> set[int]:
    """Return the values that are one number everywhere and made of nothing of ``nodes`` but such: what is ``read``
    outside of them, and what that is made of, its other readers make for themselves.
    """
    members, free = set(nodes), set[int]()
    for i in sorted(members - graph.result_set):
        if is_of_one_number(graph, i) and free.issuperset(members.intersection(graph[i].operands)):
            free.add(i)
    found = free.intersection(read)
    for i in sorted(free, reverse=True):
        if i in found:
            found |= free.intersection(graph[i].operands)
    return found


def turned_factors(body: Graph) -> set[int]:
    """Return the transposed and reversed factors of products that are worth a copy: each element is read often."""
    found: set[int] = set()
    for n in body.nodes:
        steps = prod(steps_of(body, n)) if n.op == "dot" else 0
        for o in n.operands if steps else ():
            is_reused = n.tensor.size * steps >= LEAST_USES * body[o].tensor.size
            turned = _turned(body, o) if is_reused else None
            found |= set() if turned is None else {turned}
    return found


def _is_copy(body: Graph, node: Node) -> bool:
    return node.op == "reshape" and node.tensor.dims == body[node.operands[0]].tensor.dims


def _turned(body: Graph, i: int) -> int | None:
    """Return the transposed array or copy that a product's operand is, or the transposed or reversed one that it is a
    slice of.
    """
    if body[i].op == "transpose" or _is_copy(body, body[i]):
        return i
    is_cut = False
    while body[i].op in ("slice", "reshape"):
        is_cut |= body[i].op == "slice"
        i = body[i].operands[0]
    return i if is_cut and body[i].op in ("transpose", "reverse") else None


def body_of(
    graph: Graph, nodes: Sequence[int], outputs: Sequence[int], *, copies: bool = False
) -> tuple[Graph, Mapping[int, int]]:
    """Return the nodes by themselves, and what their parameters are outside. With ``copies`` products read copies of
    factors whose elements they read often.
    """
    builder, members = Builder(graph.name), set(nodes)
    read = dict.fromkeys(o for i in nodes for o in graph[i].operands if o not in members)
    ids = {o: builder.parameter(graph[o].type, graph[o].name) for o in read if not is_rematerializable(graph[o])}
    for o in read:
        if is_rematerializable(graph[o]):
            ids[o] = builder.add(moved(graph[o], -1, ()))
    for i in nodes:
        node = moved(graph[i], -1, tuple(ids[o] for o in graph[i].operands))
        if node.op == "dot":
            node = _upright(builder, node)
            node = _copied(builder, node) if copies and node.op == "dot" else node
        ids[i] = builder.add(node)
    outside = [o for o in read if not is_rematerializable(graph[o])]
    body = builder.finish([ids[i] for i in outputs], False, graph.layouts)
    return body, MappingProxyType(dict(zip(body.parameters, outside, strict=True)))


def _upright(builder: Builder, dot: Node) -> Node:
    """Return a product with one factor transposed, where both run along what is summed up: then neighbours of the
    result read neighbours of that factor. Where that is the left one, the product is the transpose of another, whose
    results are neighbours too.
    """
    names = [f"{side}_contracting_dims" for side in ("lhs", "rhs")]
    batch = len(dot.attributes.get("lhs_batch_dims", ()))
    tensors = [builder[o].tensor for o in dot.operands]
    ranks = {len(t.dims) for t in tensors}
    if ranks != {batch + 2} or any(tuple(dot.attributes.get(name, ())) != (batch + 1,) for name in names):
        return dot
    if any(tuple(dot.attributes.get(f"{side}_batch_dims", ())) != tuple(range(batch)) for side in ("lhs", "rhs")):
        return dot
    free = [t.dims[batch] for t in tensors]
    side = min((0, 1), key=lambda k: (free[k] < LEAST_LANES, tensors[k].size))
    if free[side] < LEAST_LANES or free[1 - side] < LEAST_USES:
        return dot
    order = (*range(batch), batch + 1, batch)

    def turned(tensor: TensorType) -> TensorType:
        return TensorType(tensor.dtype, tuple(tensor.dims[d] for d in order))

    transposed = builder.derive(dot, "transpose", turned(tensors[side]), [dot.operands[side]], {"dimensions": order})
    other = dot.operands[1 - side]
    attributes = {**dot.attributes, names[1]: (batch,)}
    if side == 1:
        return replace(dot, operands=(other, transposed), attributes=MappingProxyType(attributes))
    product = builder.derive(dot, "dot", turned(dot.tensor), [other, transposed], attributes)
    return moved(replace(dot, op="transpose", attributes=MappingProxyType({"dimensions": order})), -1, (product,))


def _copied(builder: Builder, dot: Node) -> Node:
    """Return a product that reads a copy of the factor that has the last dimension of its result, if it reads each
    element often.
    """
    a, factors = dot.attributes, [builder[o] for o in dot.operands]
    known = [{*a.get(f"{s}_batch_dims", ()), *a.get(f"{s}_contracting_dims", ())} for s in ("lhs", "rhs")]
    side = int(len(known[1]) < len(factors[1].tensor.dims))
    node = factors[side]
    steps = prod(factors[0].tensor.dims[d] for d in a.get("lhs_contracting_dims", ()))
    is_across = len(node.tensor.dims) - 1 in known[side] or node.tensor.dims[-1] < LEAST_LANES
    if is_across or node.op == "transpose" or dot.tensor.size * steps < COPIED_USES * node.tensor.size:
        return dot
    operands = list(dot.operands)
    operands[side] = builder.derive(dot, "reshape", node.tensor, [operands[side]], {})
    return replace(dot, operands=tuple(operands))
