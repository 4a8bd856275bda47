"""What a loop stacks that its other stacks tell, made of those where a later loop reads it.

The gradient of a sigmoid ``s`` is ``s * (1 - s)``, which JAX has the forward loop stack beside ``s``, and that of a
hyperbolic tangent comes with ``1 - t`` beside ``t``: five of the thirteen arrays of an LSTM. Each is written and read
once, in memory where it does not fit the caches, and takes an operation or two to be made again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from jax_stitch.analysis.contraction import one_literal
from jax_stitch.analysis.maps import Index
from jax_stitch.graph.builder import Builder, copied
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE, HEAVY
from jax_stitch.loops.carried import bare, roles_of
from jax_stitch.loops.rewrites.sink import is_read_in_slices
from jax_stitch.util.values import replace

CHEAP = ELEMENTWISE - HEAVY

MOST = 4
"""Operations that make an array again."""


class _Derived(Struct, frozen=True):
    """What stands for an array that a loop stacks: the operation of its ``body`` that makes its slices, and the arrays
    outside of whose slices that is made.
    """

    body: Graph
    node: int
    arrays: Mapping[int, int]


def with_derived_stacks(graph: Graph, loop: int) -> Graph:
    """Return the graph with stacks of other loops that the ``while`` node ``loop`` alone reads, slice by slice, made of
    stacks that it reads besides, where few operations do.
    """
    node = graph[loop]
    alone = [k for k, o in enumerate(node.operands) if graph.users[o] == (loop,)]
    read = {node.operands[k] for k in alone if is_read_in_slices(graph, node, k)}
    makers = {graph[o].operands[0] for o in read if graph[o].op == "get-tuple-element"}
    derived: dict[int, _Derived] = {}
    for maker in sorted(makers):
        if graph[maker].op == "while":
            derived |= _derived(graph, graph[maker], read, node.operands)
    if not derived:
        return graph

    def before(builder: Builder, n: Node, ids: dict[int, int]) -> None:
        if n.id == loop:
            ids |= {o: _made(builder, ids, graph[o].tensor, way, way.node) for o, way in derived.items()}

    return copied(graph, before)


def _derived(graph: Graph, maker: Node, read: Collection[int], kept: Collection[int]) -> dict[int, _Derived]:
    """Return, by their ids in ``graph``, the arrays of ``read`` that ``maker`` stacks and that others of ``kept``
    tell.
    """
    roles = roles_of(graph, maker)
    if roles is None:
        return {}
    body = roles.body
    found: dict[tuple[Index, tuple[int, ...]], dict[int, int]] = {}
    for k, slice_, starts in roles.stacked:
        result = roles.results[k]
        if result is not None and result in kept:
            alike = found.setdefault((starts, graph[result].tensor.dims), {})
            alike.setdefault(bare(body, slice_), result)
    derived: dict[int, _Derived] = {}
    for arrays in found.values():
        told = {i for i, a in arrays.items() if a in read and _operations(body, i, arrays.keys() - {i}) is not None}
        left = {i: a for i, a in arrays.items() if i not in told}
        for i in told:
            operations = _operations(body, i, left)
            if operations is not None and len(operations) <= MOST:
                derived[arrays[i]] = _Derived(body, i, left)
    return derived


def _operations(body: Graph, i: int, ready: Collection[int]) -> set[int] | None:
    """Return the operations that make a value of others, element by element; ``None`` where they are not enough."""
    operations: set[int] = set()
    waiting = [i]
    while waiting:
        here = bare(body, waiting.pop())
        node = body[here]
        if here in ready or here in operations or one_literal(body, here) is not None:
            continue
        if node.op not in CHEAP or not isinstance(node.type, TensorType) or node.tensor.size != body[i].tensor.size:
            return None
        operations.add(here)
        waiting += node.operands
    return operations if any(bare(body, o) in ready for n in operations for o in body[n].operands) else None


def _made(builder: Builder, ids: Mapping[int, int], whole: TensorType, way: _Derived, i: int) -> int:
    """Return all slices of a value of the body at once, as an array of the dimensions of ``whole``."""
    i = bare(way.body, i)
    node = replace(way.body[i], kernel="")
    if i in way.arrays:
        return ids[way.arrays[i]]
    type_ = TensorType(node.tensor.dtype, whole.dims)
    number = one_literal(way.body, i)
    if number is not None:
        constant = builder.constant(node, node.tensor.dtype, number)
        return builder.derive(node, "broadcast", type_, [constant], {"dimensions": ()})
    operands = [_made(builder, ids, whole, way, o) for o in node.operands]
    return builder.derive(node, node.op, type_, operands, node.attributes, node.graphs)
