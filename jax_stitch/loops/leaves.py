"""What the body of a loop is given as numbers, and what it gives back as numbers, step by step."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jax_stitch.graph.builder import Builder, moved
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.rewrites.simplify import simplify_movement
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.rewrites.alike import LEAST, MOST_PIECES, Alike, Kind, Leaf, Vector, is_scalar


def with_plain_numbers(body: Graph) -> Graph:
    """Return the body with what is computed of arrays of one element computed of numbers: XLA has some of each."""
    builder = Builder(body.name, (_plain, simplify_movement))
    ids = {p: builder.parameter(body[p].type, body[p].name, body[p].source) for p in body.parameters}
    for n in body.nodes:
        if n.id not in ids:
            ids[n.id] = builder.add(moved(n, -1, tuple(ids[o] for o in n.operands)))
    return builder.finish([ids[r] for r in body.results], body.single, body.layouts)


def _plain(builder: Builder, node: Node) -> int | None:
    if node.op not in ELEMENTWISE or not node.operands or not node.tensor.dims or node.tensor.size != 1:
        return None
    numbers = [builder.derive(node, "reshape", TensorType(builder[o].tensor.dtype, ()), [o]) for o in node.operands]
    made = builder.derive(node, node.op, TensorType(node.tensor.dtype, ()), numbers, node.attributes)
    return builder.derive(node, "reshape", node.tensor, [made])


def leaves_of(body: Graph, tested: Collection[int], read: Collection[int]) -> dict[int, Leaf]:
    """Return the numbers that a loop's body is given, and those that it reads of arrays. ``tested`` are the numbers of
    what the loop's condition reads, ``read`` of what is read after the loop.
    """
    leaves: dict[int, Leaf] = {}
    for k, p in enumerate(body.parameters):
        node, constant = body[p], body.results[k] == p
        if k in tested or (constant and k in read):
            continue
        if is_scalar(node):
            leaves[p] = Leaf(("constant" if constant else "carried", node.type), k, p)
        elif constant and _is_read_singly(body, node):
            for u in body.users[p]:
                kind = "read", body[u].operands[1:], node.type
                leaves |= {r: Leaf(kind, k, p) for r in body.users[u]}
    return leaves


def _is_read_singly(body: Graph, array: Node) -> bool:
    """Return whether of an array only elements are read, each at a place that is computed."""
    slices = [body[u] for u in body.users[array.id]]
    return bool(slices) and all(
        u.op == "dynamic-slice"
        and u.operands[0] == array.id
        and len(u.operands) == 2
        and all(body[r].op == "reshape" and is_scalar(body[r]) for r in body.users[u.id])
        for u in slices
    )


def is_followed(body: Graph, vector: Vector, joined: Alike) -> bool:
    """Return whether the next values of a vector that a loop carries are few pieces."""
    number = {p: k for k, p in enumerate(body.parameters)}
    following = [body.results[number[i]] for i in vector.members]
    return following == list(vector.members) or len(joined.pieces(following)) <= 2 * MOST_PIECES


def stacks_of(body: Graph, joined: Alike, tested: Collection[int]) -> list[tuple[int, ...]]:
    """Return the arrays into which lanes of one vector are written step by step, by number, in groups in the lanes'
    order.
    """
    groups: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for k, p in enumerate(body.parameters):
        update = stacked_number(body, k)
        if update is not None and update in joined.lanes and k not in tested:
            vector, lane = joined.lanes[update]
            key = vector, body[body.results[k]].operands[2:], body[p].type
            groups.setdefault(key, []).append((lane, k))
    return [tuple(k for _, k in sorted(lanes)) for lanes in groups.values() if len(lanes) >= LEAST]


def stacked_number(body: Graph, k: int) -> int | None:
    """Return the number that a step writes into the carried array ``k``, if that is all it does to it."""
    parameter, following = body.parameters[k], body.results[k]
    node = body[following]
    if node.op != "dynamic-update-slice" or node.operands[0] != parameter or len(node.operands) != 3:
        return None
    only_written = body.users[parameter] == (following,) and not body.users[following]
    if not only_written or body.results.count(following) != 1:
        return None
    update = body[node.operands[1]]
    return update.operands[0] if update.op == "reshape" and is_scalar(body[update.operands[0]]) else None


def carried_groups(body: Graph, joined: Alike) -> tuple[tuple[int, ...], ...]:
    """Return what becomes one carried array each, by number, in the order of the vectors that are given."""
    number: Mapping[int, int] = {p: k for k, p in enumerate(body.parameters)}
    given = [v for v in joined.vectors if v.kind in (Kind.GIVEN, Kind.ARRAY)]
    return tuple(tuple(number[i] for i in v.members) for v in given)
