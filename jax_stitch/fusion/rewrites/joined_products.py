"""Products with an operand in common, as one product of that and the others side by side.

XLA joins such products unless they are large. XLA of jax 0.11 stops at fewer, and splits what is left along what it
contracts, where XLA of jax 0.10 made one of all. When the program with our kernels in it is compiled, XLA joins what it
had left, and then whole arrays are put together before the product and cut apart behind it. Here they are joined before
kernels are planned, which write and read the parts where they are.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

from msgspec import Struct

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_library
from jax_stitch.graph.builder import freeze
from jax_stitch.graph.combiners import neutral_value
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.order import ordered
from jax_stitch.graph.products import precision_exchanged
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.util.values import replace

SMALL = 64 << 20
"""Bytes read and written, up to which XLA joins a product with another one, whatever the size of that."""

_NUMBERS = tuple(f"{side}_{kind}_dims" for side in ("lhs", "rhs") for kind in ("batch", "contracting"))

_NOTHING: Mapping[str, Any] = freeze({})


class _Product(Struct, frozen=True):
    """A product of two matrices, seen from one of its operands."""

    dot: int
    result: int
    """The product itself, or the sum of its parts where XLA has split what it contracts."""
    side: int
    """Of the operand in common."""
    dims: tuple[int, int]
    """Of the other operand, as a matrix."""
    contracted: int
    """The dimension of the other operand that is summed up."""


def products_joined(graph: Graph) -> Graph:
    """Return the graph with such products joined, pair by pair."""
    while pairs := _pairs(graph):
        graph = _joined(graph, pairs)
    return graph


_Pair = tuple[_Product, _Product]


def _pairs(graph: Graph) -> list[_Pair]:
    """Return pairs of products to be joined at a time; the first of each is not split.

    None begins in the order of nodes before another has ended: else each of two could need the other once joined.
    """
    alike: dict[Hashable, list[_Product]] = defaultdict(list)
    dots = [n for n in graph.nodes if n.op == "dot" and is_library(graph, n)]
    values = _Values(graph, {n.kernel for n in dots if n.kernel})
    for dot in dots:
        for key, product in _products(graph, dot, values):
            alike[key].append(product)
    pairs: list[_Pair] = []
    begins: list[int] = []
    ends: list[int] = []
    for group in alike.values():
        for a, b in combinations(group, 2):
            first, last = sorted((a.dot, b.dot))
            at = bisect(begins, last)
            if at and ends[at - 1] >= first:
                continue
            if a.result != a.dot:
                a, b = b, a
            if a.result == a.dot and _pays(graph, a, b) and not _depends(graph, first, last):
                pairs.append((a, b))
                begins.insert(at, first)
                ends.insert(at, last)
    return pairs


def _pays(graph: Graph, a: _Product, b: _Product) -> bool:
    """Return whether they are two products, one of which is small."""
    return a.dot != b.dot and min(_bytes(graph, a), _bytes(graph, b)) <= SMALL


def _bytes(graph: Graph, product: _Product) -> int:
    return sum(node_bytes(graph[i]) for i in (*graph[product.dot].operands, product.result))


def _products(graph: Graph, dot: Node, values: _Values) -> Iterator[tuple[Hashable, _Product]]:
    """Yield a product of matrices seen from both of its operands, each with what products that can be joined have
    alike.
    """
    matrices = [m for side in (0, 1) if (m := _matrix(graph, dot, side)) is not None]
    result = dot.id if not dot.attributes.get("lhs_batch_dims", ()) else _sum_of_parts(graph, dot)
    if result is None or len(matrices) < 2:
        return
    told = {k: v for k, v in dot.attributes.items() if k not in _NUMBERS}
    for side, seen in ((0, told), (1, precision_exchanged(told))):
        mine, at = matrices[side]
        dims, contracted = matrices[1 - side]
        key = (
            values[dot.operands[side], mine],
            at,
            contracted,
            graph[dot.operands[1 - side]].tensor.dtype,
            dot.tensor.dtype,
            _told(seen),
        )
        yield key, _Product(dot.id, result, side, dims, contracted)


def _told(attributes: Mapping[str, Any]) -> Hashable:
    return tuple(sorted((k, repr(v)) for k, v in attributes.items()))


def _matrix(graph: Graph, dot: Node, side: int) -> tuple[tuple[int, int], int] | None:
    """Return the dimensions of an operand as a matrix, and the one that is summed up; ``None`` where it is none."""
    name = ("lhs", "rhs")[side]
    dims = graph[dot.operands[side]].tensor.dims
    batch, contracted = (dot.attributes.get(f"{name}_{kind}_dims", ()) for kind in ("batch", "contracting"))
    if len(contracted) != 1:
        return None
    (at,) = contracted
    if len(dims) == 2 and not batch:
        return (dims[0], dims[1]), at
    if len(dims) == 3 and tuple(batch) == (at - 1,):
        return ((dims[0] * dims[1], dims[2]), 0) if at == 1 else ((dims[0], dims[1] * dims[2]), 1)
    return None


def _sum_of_parts(graph: Graph, dot: Node) -> int | None:
    """Return the sum of a product's matrices, where that is all that is read of it."""
    users = graph.users[dot.id]
    if dot.id in graph.result_set or len(users) != 1:
        return None
    user = graph[users[0]]
    if user.op != "reduce" or len(user.operands) != 2 or tuple(user.attributes["dimensions"]) != (0,):
        return None
    start = graph[user.operands[1]].literal
    combine = user.graphs["to_apply"]
    if start is None or start.item() != 0 or neutral_value(combine, dot.tensor.dtype) is None:
        return None
    return user.id if combine[combine.results[0]].op == "add" else None


class _Values:
    """Numbers for values under given dimensions, equal for those that are the same."""

    def __init__(self, graph: Graph, kernels: Collection[str]) -> None:
        self._graph = graph
        self._kernels = kernels
        """Of products: what is computed in them is looked through."""
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}

    def __getitem__(self, value: tuple[int, tuple[int, ...]]) -> int:
        if value not in self._known:
            key = self._key(*value)
            self._known[value] = self._numbers.setdefault(key, len(self._numbers))
        return self._known[value]

    def _key(self, i: int, dims: tuple[int, ...]) -> Hashable:
        node = self._graph[i]
        if node.op == "reshape":
            return self._key(node.operands[0], dims)
        if node.kernel in self._kernels and node.op in ELEMENTWISE:
            return node.op, node.tensor.dtype, _told(node.attributes), tuple(self[o, dims] for o in node.operands)
        if node.op == "broadcast":
            places = tuple(_place(node.tensor.dims, d, dims) for d in node.attributes["dimensions"])
            if None not in places:
                return node.op, node.operands[0], places, dims
        return i, dims


def _place(dims: Sequence[int], d: int, others: Sequence[int]) -> int | None:
    """Return where a dimension is in another shape of the same array; ``None`` where it is cut or joined with
    others.
    """
    size, behind = dims[d], prod(dims[d + 1 :])
    return next((e for e, n in enumerate(others) if n == size and prod(others[e + 1 :]) == behind), None)


def _depends(graph: Graph, first: int, second: int) -> bool:
    """Return whether the second of two nodes needs the first."""
    waiting, seen = [second], {second}
    while waiting:
        for o in graph[waiting.pop()].operands:
            if o == first:
                return True
            if o > first and o not in seen:
                seen.add(o)
                waiting.append(o)
    return False


def _joined(graph: Graph, pairs: Sequence[_Pair]) -> Graph:
    """Return the graph with the second product of each pair beside the first."""
    made = _Nodes(graph)
    for a, b in pairs:
        _join(made, a, b)
    return ordered(replace(graph, nodes=tuple(made.nodes)))


def _join(made: _Nodes, a: _Product, b: _Product) -> None:
    graph = made.graph
    dot = graph[a.dot]
    along, axis = 1 - a.contracted, 1 - a.side
    shared, other = (graph[dot.operands[side]] for side in (a.side, axis))
    first, second = _parts(made, a), _parts(made, b)
    size, total = a.dims[along], a.dims[along] + b.dims[along]
    origin = other if other.op == "concatenate" and len(first) > 1 else dot
    type_ = _resized(other.tensor, along, total)
    both = made.add(origin, "concatenate", type_, (*first, *second), {"dimensions": (along,)})
    operands = (shared.id, both) if a.side == 0 else (both, shared.id)
    whole = made.add(dot, "dot", _resized(dot.tensor, axis, total), operands, dot.attributes)
    made.cut(a.result, whole, axis, 0)
    if a.side == b.side:
        made.cut(b.result, whole, axis, size)
    else:
        made.turn(b.result, whole, axis, size)


def _resized(tensor: TensorType, d: int, size: int) -> TensorType:
    return TensorType(tensor.dtype, (*tensor.dims[:d], size, *tensor.dims[d + 1 :]))


def _parts(made: _Nodes, product: _Product) -> list[int]:
    """Return the other operand of a product as a matrix, and what that is put together of."""
    graph = made.graph
    i = start = graph[product.dot].operands[1 - product.side]
    while graph[i].tensor.dims != product.dims and graph[i].op == "reshape":
        i = graph[i].operands[0]
    if graph[i].tensor.dims != product.dims:
        type_ = TensorType(graph[start].tensor.dtype, product.dims)
        return [made.add(graph[start], "reshape", type_, [start])]
    node = graph[i]
    if node.op == "concatenate" and node.attributes["dimensions"] == (1 - product.contracted,):
        if len(graph.users[i]) == 1 and i not in graph.result_set:
            return list(node.operands)
    return [i]


class _Nodes:
    """The nodes of a graph with some replaced and others behind them, in no order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = list(graph.nodes)
        self._views: dict[tuple[int, tuple[int, ...]], int] = {}

    def add(
        self,
        origin: Node,
        op: str,
        type_: TensorType,
        operands: Sequence[int],
        attributes: Mapping[str, Any] = _NOTHING,
    ) -> int:
        """Return a node behind all others, that takes part in what another did."""
        inherited = origin.name, origin.kernel, origin.source, origin.scope
        node = Node(len(self.nodes), op, type_, tuple(operands), freeze(attributes), _NOTHING, None, *inherited)
        self.nodes.append(node)
        return node.id

    def _put(self, i: int, op: str, operands: tuple[int, ...], attributes: Mapping[str, Any]) -> None:
        """Put another node in the place of one, in the kernel of its readers if that is one."""
        kernels = {self.graph[u].kernel for u in self.graph.users[i]}
        kernel = kernels.pop() if len(kernels) == 1 and i not in self.graph.result_set else ""
        node, attributes = self.nodes[i], freeze(attributes)
        node = replace(node, op=op, operands=operands, attributes=attributes, graphs=_NOTHING, literal=None)
        self.nodes[i] = replace(node, kernel=kernel or node.name or node.kernel)

    def cut(self, i: int, whole: int, axis: int, start: int) -> None:
        """Make node ``i`` a slice of another from now on, and what is a view or a slice of it."""
        graph = self.graph
        dims = graph[i].tensor.dims
        ranges = [(0, n, 1) for n in dims]
        ranges[axis] = (start, start + dims[axis], 1)
        self._put(i, "slice", (whole,), {"slice": tuple(ranges)})
        for u in graph.users[i]:
            user = graph[u]
            if user.op == "slice":
                ranges = list(user.attributes["slice"])
                first, last, step = ranges[axis]
                ranges[axis] = (start + first, start + last, step)
                attributes = freeze({**user.attributes, "slice": tuple(ranges)})
                self.nodes[u] = replace(user, operands=(whole,), attributes=attributes)
            elif user.op == "reshape" and (place := _place(dims, axis, user.tensor.dims)) is not None:
                self.cut(u, self._view(user, whole, axis, place), place, start)

    def _view(self, user: Node, whole: int, axis: int, place: int) -> int:
        """Return the whole array in the shape that a reader has a part of it in."""
        type_ = _resized(user.tensor, place, self.nodes[whole].tensor.dims[axis])
        if (whole, type_.dims) not in self._views:
            self._views[whole, type_.dims] = self.add(user, "reshape", type_, [whole])
        return self._views[whole, type_.dims]

    def turn(self, i: int, whole: int, axis: int, start: int) -> None:
        """Make node ``i`` a slice of another matrix, transposed, from now on."""
        node = self.graph[i]
        dims = node.tensor.dims[::-1]
        ranges = [(0, n, 1) for n in dims]
        ranges[axis] = (start, start + dims[axis], 1)
        part = self.add(node, "slice", TensorType(node.tensor.dtype, dims), [whole], {"slice": tuple(ranges)})
        self._put(i, "transpose", (part,), {"dimensions": (1, 0)})
        for u in self.graph.users[i]:
            if self.graph[u].op == "transpose":
                self.cut(u, whole, axis, start)
