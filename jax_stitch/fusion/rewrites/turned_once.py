"""Products that read one value in two orders of its dimensions, one of them inside of a product's kernel.

XLA of jax 0.11 computes what two products read once, and turns it around for each: for the one inside its kernel, for
the other by a kernel of its own. A kernel that makes the value cannot write what a product turns around inside, and so
XLA turns it by a launch more, or the kernel writes it twice. Products take their operands' dimensions in any order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from math import prod

from msgspec import Struct

from jax_stitch.analysis.support import is_view, reason_unsupported
from jax_stitch.graph.builder import Builder, freeze, moved
from jax_stitch.graph.flattening import IN_PRODUCT
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.util.values import replace

_SIDES = ("lhs", "rhs")


class _Turned(Struct, frozen=True):
    """A value as all of its products read it."""

    source: int
    order: tuple[int, ...]
    example: Node
    """The transpose whose kernel makes it."""
    replaced: frozenset[int]
    """The transposes that it stands for, in this order or another."""


def turned_once(graph: Graph) -> Graph:
    """Return the graph with such values turned around once, and the products' numbers of their dimensions with it."""
    found = [t for source, turns in _turns(graph).items() if (t := _common(graph, source, turns)) is not None]
    if not found:
        return graph
    by_turn = {i: t for t in found for i in t.replaced}
    builder = Builder(graph.name)
    ids = {p: builder.parameter(graph[p].type, graph[p].name, graph[p].source) for p in graph.parameters}
    for node in graph.nodes:
        if node.id in ids:
            continue
        turned = by_turn.get(node.id)
        if turned is not None:
            here = builder.derive(
                turned.example, "transpose", _type(graph, turned), [ids[turned.source]], {"dimensions": turned.order}
            )
            if node.attributes["dimensions"] == turned.order:
                ids[node.id] = here
            continue
        if node.op == "dot":
            node = _read_so(graph, node, by_turn, ids, builder)
            ids[node.id] = builder.add(moved(node, -1, node.operands))
        elif all(o in ids for o in node.operands):  # The others are views of what is replaced.
            ids[node.id] = builder.add(moved(node, -1, tuple(ids[o] for o in node.operands)))
    return builder.finish([ids[r] for r in graph.results], graph.single, graph.layouts)


def _type(graph: Graph, turned: _Turned) -> TensorType:
    source = graph[turned.source].tensor
    return TensorType(source.dtype, tuple(source.dims[d] for d in turned.order))


def _read_so(graph: Graph, dot: Node, by_turn: dict[int, _Turned], ids: dict[int, int], builder: Builder) -> Node:
    """Return a product with its operands in the builder, those that were turned in another order in the new one."""
    operands: list[int] = []
    attributes = dict(dot.attributes)
    for side, o in enumerate(dot.operands):
        if o in ids:
            operands.append(ids[o])
            continue
        turn = _origin(graph, o)
        turned = by_turn[turn]
        moves = _moves(graph, turn, o, turned.order)
        assert moves is not None
        attributes |= _numbers(dot, side, moves)
        dims = tuple(graph[o].tensor.dims[d] for d in moves)
        here = builder.derive(
            turned.example, "transpose", _type(graph, turned), [ids[turned.source]], {"dimensions": turned.order}
        )
        view = replace(graph[o], op="reshape", attributes=freeze({}), type=TensorType(graph[o].tensor.dtype, dims))
        same = dims == builder[here].tensor.dims
        operands.append(here if same else builder.add(moved(view, -1, (here,))))
    return replace(dot, operands=tuple(operands), attributes=freeze(attributes))


def _turns(graph: Graph) -> dict[int, list[Node]]:
    """Return the transposes of each value that products alone read, those inside of their kernels too."""
    products = {n.kernel for n in graph.nodes if n.kernel and n.op in ("dot", "convolution")}
    turns: dict[int, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op == "transpose" and node.kernel and _is_for(graph, node.id, products):
            turns[node.operands[0]].append(node)
    return turns


def _is_for(graph: Graph, i: int, kernels: Collection[str]) -> bool:
    """Return whether only these kernels read a value, under whatever shape."""
    if i in graph.result_set:
        return False
    return all(graph[u].kernel in kernels or (is_view(graph[u]) and _is_for(graph, u, kernels)) for u in graph.users[i])


def _common(graph: Graph, source: int, turns: Sequence[Node]) -> _Turned | None:
    """Return the order of a product that turns the value around inside, for all that is turned outside of products too:
    best one in which neighbours in memory stay such.
    """
    inside = [n for n in turns if IN_PRODUCT in n.attributes]
    outside = [n for n in turns if IN_PRODUCT not in n.attributes]
    # What no kernel of ours makes is turned around by a launch of its own, which may as well come late.
    if not inside or not outside or reason_unsupported(graph, graph[_origin(graph, source)]) is not None:
        return None
    orders = dict.fromkeys(n.attributes["dimensions"] for n in inside)
    for order in sorted(orders, key=lambda order: order[-1] != len(order) - 1):
        if all(_may_turn(graph, n, order) for n in outside):
            example = next((n for n in outside if n.attributes["dimensions"] == order), outside[0])
            alike = (n.id for n in inside if n.attributes["dimensions"] == order)
            return _Turned(source, order, example, frozenset({*alike, *(n.id for n in outside)}))
    return None


def _may_turn(graph: Graph, turn: Node, order: tuple[int, ...]) -> bool:
    """Return whether all that reads a transpose could read its operand in another order instead."""
    if turn.attributes["dimensions"] == order:
        return True
    for user, operand in _readers(graph, turn.id):
        node = graph[user]
        moves = _moves(graph, turn.id, operand, order)
        if node.op != "dot" or moves is None:
            return False
        if not all(_stays(graph, node, side, moves) for side, o in enumerate(node.operands) if o == operand):
            return False
    return True


def _readers(graph: Graph, i: int) -> Iterator[tuple[int, int]]:
    """Return who reads a value, and the view of it that is read."""
    for u in graph.users[i]:
        if graph[u].op == "reshape":
            yield from _readers(graph, u)
        else:
            yield u, i


def _origin(graph: Graph, i: int) -> int:
    """Return the value that another has the elements of, in another shape."""
    while graph[i].op == "reshape":
        i = graph[i].operands[0]
    return i


def _moves(graph: Graph, turn: int, view: int, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the dimensions of a view of a transpose in the order that they have in a view of its operand transposed in
    ``order``; ``None`` where that cuts dimensions that the view has made one.
    """
    before = graph[turn].attributes["dimensions"]
    places = [before.index(d) for d in order]
    runs = list(_runs(graph[turn].tensor.dims, graph[view].tensor.dims))
    moves: list[int] = []
    while places:
        run = next((theirs for mine, theirs in runs if mine == tuple(places[: len(mine)])), None)
        if run is None:
            return None
        mine = next(mine for mine, theirs in runs if theirs == run)
        moves += run
        places = places[len(mine) :]
    return tuple(moves)


def _runs(source: Sequence[int], view: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the shortest runs of dimensions of a value and of a view of it that cover each other."""
    i = k = 0
    while i < len(source):
        first, begin = i, k
        i, k = i + 1, k + 1
        while prod(source[first:i]) != prod(view[begin:k]):
            if prod(source[first:i]) < prod(view[begin:k]):
                i += 1
            else:
                k += 1
        if i == len(source):
            k = len(view)
        yield tuple(range(first, i)), tuple(range(begin, k))


def _stays(graph: Graph, dot: Node, side: int, moves: tuple[int, ...]) -> bool:
    """Return whether the result stays what it is, and matrices of a batch matrices: those dimensions that the result
    has by themselves stay in order, and those of the batch are first.
    """
    kinds = {kind: tuple(dot.attributes.get(f"{_SIDES[side]}_{kind}_dims", ())) for kind in ("batch", "contracting")}
    free = [d for d in moves if d not in kinds["batch"] and d not in kinds["contracting"]]
    count = len(kinds["batch"])
    first = set(moves[:count]) == set(kinds["batch"]) or set(kinds["batch"]) != set(range(count))
    return free == sorted(free) and first


def _numbers(dot: Node, side: int, moves: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the dimension numbers of a product one of whose operands has its dimensions in this order."""
    names = [f"{_SIDES[side]}_{kind}_dims" for kind in ("contracting", "batch")]
    return {n: tuple(moves.index(d) for d in dot.attributes.get(n, ())) for n in names}
