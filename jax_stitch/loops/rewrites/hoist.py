"""Sums that a loop carries, taken out of it: their terms are stacked, and summed up after the loop.

The weight gradient of a recurrent cell is a sum over steps of products over the batch, ``dW += x[t]^T dz[t]``. Inside
the loop it ties all rows of the batch together and reads and writes all of ``dW`` at each step; after it, it is one
large product of the stacked ``x`` and ``dz``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis.maps import STEP, value_of
from jax_stitch.graph import rewrite
from jax_stitch.graph.builder import Builder, moved
from jax_stitch.graph.combiners import is_neutral
from jax_stitch.graph.model import Graph, Node, TensorType, TupleType
from jax_stitch.graph.products import FULL, sides_exchanged
from jax_stitch.graph.rewrites.simplify import known_value
from jax_stitch.ir.indices import var
from jax_stitch.util.values import replace

LARGE, LEAST_BESIDE = 1 << 14, 1 << 12
"""Elements of a matrix that leaves a core's first cache, so that adding to all of it in each step takes long; and of
one that is taken out beside others, since what adds them up after the loop is there.
"""


class _Sum(Struct, frozen=True):
    """A carried sum: its number, and the product or reduction that each step adds, behind ``moves``. What is neither is
    every element of one vector times every one of another: a product over the steps.
    """

    number: int
    term: int
    moves: tuple[int, ...]


class _Series(Struct, frozen=True):
    """All steps' values of a node of the body as one array outside, the step first: an array there already
    (``array``, a parameter's number), or one to be stacked.
    """

    node: int
    array: int | None


def with_simple_products(graph: Graph) -> Graph:
    """Return the graph with transposed products and pieces of joined products as products of their own."""
    return rewrite(graph, (_transposed_product, _piece_of_product))


def _transposed_product(builder: Builder, node: Node) -> int | None:
    if node.op != "transpose" or builder[node.operands[0]].op != "dot":
        return None
    dot = builder[node.operands[0]]
    a = dot.attributes
    left, right = (builder[o].tensor for o in dot.operands)
    contracted = len(a.get("lhs_contracting_dims", ()))
    free = len(left.dims) - contracted, len(right.dims) - contracted
    order = (*range(free[0], sum(free)), *range(free[0]))
    if a.get("lhs_batch_dims") or tuple(node.attributes["dimensions"]) != order:
        return None
    return builder.derive(dot, "dot", node.type, dot.operands[::-1], sides_exchanged(a))


def _piece_of_product(builder: Builder, node: Node) -> int | None:
    """Return ``slice(dot(concatenate(a, b), c))`` as the product of ``a``, if the slice is what ``a`` makes: XLA joins
    products that share an operand.
    """
    if node.op != "slice" or builder[node.operands[0]].op != "dot":
        return None
    dot = builder[node.operands[0]]
    a = dot.attributes
    sliced = [d for d, (low, high, _) in enumerate(node.attributes["slice"]) if (low, high) != (0, dot.tensor.dims[d])]
    if len(sliced) != 1 or a.get("lhs_batch_dims") or node.attributes["slice"][sliced[0]][2] != 1:
        return None
    rank = len(builder[dot.operands[0]].tensor.dims) - len(a["lhs_contracting_dims"])
    side = int(sliced[0] >= rank)
    contracted = a[("lhs_contracting_dims", "rhs_contracting_dims")[side]]
    joined = builder[dot.operands[side]]
    free = [d for d in range(len(joined.tensor.dims)) if d not in contracted]
    axis = free[sliced[0] - rank * side]
    if joined.op != "concatenate" or tuple(joined.attributes["dimensions"]) != (axis,):
        return None
    low, high, _ = node.attributes["slice"][sliced[0]]
    start = 0
    for o in joined.operands:
        if (start, start + builder[o].tensor.dims[axis]) == (low, high):
            operands = tuple(o if k == side else other for k, other in enumerate(dot.operands))
            return builder.derive(dot, "dot", node.type, operands, a)
        start += builder[o].tensor.dims[axis]
    return None


def without_sums(graph: Graph, loop: int, vectors: bool) -> Graph | None:
    """Return the graph with the sums that the ``while`` node ``loop`` carries taken out of it; ``None`` where it has
    none. ``vectors``: large ones too to which a step adds one vector times another, as a batch of one does.
    """
    node = graph[loop]
    trips = node.attributes.get("trip_count")
    body = node.graphs["body"]
    used = {graph[u].attributes.get("index") for u in graph.users[loop]}
    sums = _sums(node, [k for k in range(len(body.parameters)) if k in used], vectors)
    counter = _counter(graph, node)
    if not trips or not sums or counter is None or None in used or loop in graph.result_set:
        return None
    return _Hoist(graph, node, sums, counter).done()


def _sums(node: Node, numbers: Sequence[int], vectors: bool) -> list[_Sum]:
    """Return those among some carried values that are taken out."""
    sums = {k: s for k in numbers if (s := _sum(node, k, LARGE if vectors else None)) is not None}
    if vectors and sums:
        sums |= {k: s for k in numbers if k not in sums and (s := _sum(node, k, LEAST_BESIDE)) is not None}
    return list(sums.values())


def _sum(node: Node, number: int, least: int | None) -> _Sum | None:
    """Return the sum that a carried value is; of vectors multiplied, if any are taken, where it has so many
    elements.
    """
    body = node.graphs["body"]
    parameter, following = body.parameters[number], body[body.results[number]]
    condition = node.graphs["condition"]
    if following.op != "add" or parameter not in following.operands or body.users[parameter] != (following.id,):
        return None
    if body.users[following.id] or body.results.count(following.id) != 1:
        return None
    if condition.users[condition.parameters[number]] or body[parameter].tensor.dtype not in ("f32", "f64"):
        return None
    (other,) = [o for o in following.operands if o != parameter] or [parameter]
    moves: list[int] = []
    while body[other].op in ("transpose", "reshape"):
        moves.append(other)
        other = body[other].operands[0]
    term = body[other]
    if term.op == "dot" and not term.attributes.get("lhs_batch_dims"):
        return _Sum(number, other, tuple(moves[::-1]))
    if term.op == "reduce" and len(term.operands) == 2 and _adds(body, term):
        return _Sum(number, other, tuple(moves[::-1]))
    large = least is not None and term.op == "multiply" and term.tensor.size >= least
    if large and _vectors(body, term) is not None:
        return _Sum(number, other, tuple(moves[::-1]))
    return None


def _vectors(body: Graph, node: Node) -> tuple[int, int] | None:
    """Return the vectors whose elements a matrix multiplies, those of the first along its columns."""
    sides = [body[o] for o in node.operands]
    if node.op != "multiply" or len(node.tensor.dims) != 2 or any(s.op != "broadcast" for s in sides):
        return None
    along = {tuple(s.attributes["dimensions"]): s.operands[0] for s in sides}
    return (along[0,], along[1,]) if along.keys() == {(0,), (1,)} else None


def _adds(body: Graph, reduce: Node) -> bool:
    ops = [n.op for n in reduce.graphs["to_apply"].nodes if n.op != "parameter"]
    return ops == ["add"] and is_neutral(reduce.graphs["to_apply"], body[reduce.operands[1]])


def _counter(graph: Graph, node: Node) -> int | None:
    """Return the number of a carried value that counts the steps from 0."""
    body = node.graphs["body"]
    for k, parameter in enumerate(body.parameters):
        following, start = body[body.results[k]], graph[node.operands[k]].literal
        if following.op != "add" or parameter not in following.operands or start is None or start.ndim or start != 0:
            continue
        (other,) = [o for o in following.operands if o != parameter] or [parameter]
        if body[other].literal is not None and body[other].literal == 1 and body[parameter].tensor.dtype[0] in "su":
            return k
    return None


class _Hoist:
    """The rewriting of one loop."""

    def __init__(self, graph: Graph, node: Node, sums: Sequence[_Sum], counter: int):
        self._graph, self._node, self._sums, self._counter = graph, node, sums, counter
        self._body = node.graphs["body"]
        self._trips: int = node.attributes["trip_count"]
        terms = [self._body[s.term] for s in sums]
        operands = dict.fromkeys(o for t in terms for o in self._summed(t))
        arrays = {o: self._array(o) for o in operands}
        self._backwards = next((array[1] for array in arrays.values() if array is not None), False)
        """In which order the series go through the steps: that of the arrays which are there already."""
        self._series = {
            o: _Series(o, array[0] if array is not None and array[1] == self._backwards else None)
            for o, array in arrays.items()
        }
        self._stacked = [x.node for x in self._series.values() if x.array is None]
        gone = {s.number for s in sums}
        self._left = [k for k in range(len(self._body.parameters)) if k not in gone]

    def _summed(self, term: Node) -> tuple[int, ...]:
        """Return what each step adds to a sum."""
        return _vectors(self._body, term) or term.operands[: 2 if term.op == "dot" else 1]

    def _array(self, i: int) -> tuple[int, bool] | None:
        """Return the number of the array outside whose slices a value is, one each step, and whether from the last
        on.
        """
        body = self._body
        node = body[body[i].operands[0]] if body[i].op == "reshape" else body[i]
        if node.op != "dynamic-slice" or node.operands[0] not in body.parameters:
            return None
        number, dims = body.parameters.index(node.operands[0]), body[node.operands[0]].tensor.dims
        if (
            body.results[number] != node.operands[0]
            or dims[0] != self._trips
            or not _alike(body[i].tensor.dims, dims[1:])
        ):
            return None
        if node.tensor.dims != (1, *dims[1:]):
            return None
        counter = body.parameters[self._counter]
        attributes = MappingProxyType({"start": 0, "by": 1, "trips": self._trips})
        nodes = list(body.nodes)
        nodes[counter] = replace(body[counter], op=STEP, attributes=attributes)
        start = value_of(replace(body, nodes=tuple(nodes)), nodes[node.operands[1]], ())
        step = var("step", self._trips)
        if start == step:
            return number, False
        return (number, True) if start == -step + (self._trips - 1) else None

    def done(self) -> Graph:
        graph, node = self._graph, self._node
        builder = Builder(graph.name)
        ids = {i: builder.parameter(graph[i].type, graph[i].name, graph[i].source) for i in graph.parameters}
        loop = -1
        for n in graph.nodes:
            if n.id in ids:
                continue
            if n.id == node.id:
                loop = ids[n.id] = self._loop(builder, ids)
            elif n.op == "get-tuple-element" and n.operands[0] == node.id:
                ids[n.id] = self._result(builder, ids, loop, n)
            else:
                ids[n.id] = builder.add(moved(n, -1, tuple(ids[o] for o in n.operands)))
        return builder.finish([ids[r] for r in graph.results], graph.single, graph.layouts)

    def _type(self, i: int) -> TensorType:
        """Return the type of a series."""
        t = self._body[i].tensor
        return TensorType(t.dtype, (self._trips, *t.dims))

    def _loop(self, builder: Builder, ids: Mapping[int, int]) -> int:
        node = self._node
        operands = [ids[node.operands[k]] for k in self._left]
        for i in self._stacked:
            zero = builder.constant(self._body[i], self._type(i).dtype, np.zeros((), _numpy(self._type(i).dtype)))
            operands.append(builder.derive(node, "broadcast", self._type(i), [zero], {"dimensions": ()}))
        assert isinstance(node.type, TupleType)
        types = [*(node.type.elements[k] for k in self._left), *map(self._type, self._stacked)]
        graphs = {"body": self._new_body(), "condition": self._new_condition()}
        return builder.derive(node, "while", TupleType(tuple(types)), operands, node.attributes, graphs)

    def _parameters(self, builder: Builder, of: Graph) -> dict[int, int]:
        """Add the new loop's parameters to a body or condition; those of the old one by their ids."""
        ids = {of.parameters[k]: builder.parameter(of[of.parameters[k]].type) for k in self._left}
        self._stacks = [builder.parameter(self._type(i)) for i in self._stacked]
        return ids

    def _new_body(self) -> Graph:
        body, builder = self._body, Builder(self._body.name)
        ids = self._parameters(builder, body)
        sums = {body.parameters[s.number] for s in self._sums} | {body.results[s.number] for s in self._sums}
        for n in body.nodes:
            if n.id not in ids and n.id not in sums:
                ids[n.id] = builder.add(moved(n, -1, tuple(ids[o] for o in n.operands)))
        results = [ids[body.results[k]] for k in self._left]
        counter = body[body.parameters[self._counter]]
        step, dtype = ids[counter.id], counter.tensor.dtype
        if self._backwards:
            last = builder.constant(counter, dtype, np.asarray(self._trips - 1, _numpy(dtype)))
            step = builder.derive(counter, "subtract", counter.type, [last, step])
        zero = builder.constant(counter, dtype, np.zeros((), _numpy(dtype)))
        for i, stack in zip(self._stacked, self._stacks, strict=True):
            t = self._type(i)
            row = builder.derive(body[i], "reshape", TensorType(t.dtype, (1, *t.dims[1:])), [ids[i]])
            operands = [stack, row, step, *(zero for _ in t.dims[1:])]
            results.append(builder.derive(body[i], "dynamic-update-slice", t, operands))
        return builder.finish(results, body.single, body.layouts)

    def _new_condition(self) -> Graph:
        test, builder = self._node.graphs["condition"], Builder(self._node.graphs["condition"].name)
        ids = self._parameters(builder, test)
        gone = {test.parameters[s.number] for s in self._sums}
        for n in test.nodes:
            if n.id not in ids and n.id not in gone:
                ids[n.id] = builder.add(moved(n, -1, tuple(ids[o] for o in n.operands)))
        return builder.finish([ids[r] for r in test.results], test.single, test.layouts)

    def _result(self, builder: Builder, ids: Mapping[int, int], loop: int, old: Node) -> int:
        """Return what stands for a carried value after the loop."""
        number = old.attributes["index"]
        for s in self._sums:
            if s.number == number:
                return self._sum(builder, ids, loop, old, s)
        return builder.derive(old, "get-tuple-element", old.type, [loop], {"index": self._left.index(number)})

    def _sum(self, builder: Builder, ids: Mapping[int, int], loop: int, old: Node, s: _Sum) -> int:
        body = self._body
        term = body[s.term]
        own = replace(term, kernel="")
        a: dict[str, Any] = dict(term.attributes)
        if term.op == "dot":
            series = [self._outside(builder, ids, loop, old, o) for o in term.operands]
            names = ("lhs_contracting_dims", "rhs_contracting_dims")
            flat = all(tuple(a[name]) == (0,) for name in names)
            operands = [_joined(builder, own, o) for o in series] if flat else series
            for name in names:
                a[name] = (0,) if flat else (0, *(d + 1 for d in a[name]))
            total = builder.derive(own, "dot", term.type, operands, a)
        elif term.op == "multiply":
            series = [self._outside(builder, ids, loop, old, o) for o in self._summed(term)]
            dims = {f"{side}_{kind}_dims": (0,) * (kind == "contracting") for side in _SIDES for kind in _KINDS}
            a = {**dims, **FULL}
            total = builder.derive(own, "dot", term.type, series, a)
        else:
            initial = builder.add(moved(body[term.operands[1]], -1, ()))
            a["dimensions"] = (0, *(d + 1 for d in a["dimensions"]))
            operands = [self._outside(builder, ids, loop, old, term.operands[0]), initial]
            total = builder.derive(own, "reduce", term.type, operands, a, term.graphs)
        for i in s.moves:
            swapped = _swapped(builder, total, body[i])
            plain = replace(body[i], kernel="")
            total = swapped or builder.derive(plain, body[i].op, body[i].type, [total], body[i].attributes)
        start = ids[self._node.operands[s.number]]
        if known_value(builder, start) == 0:
            return total
        return builder.derive(replace(old, kernel=""), "add", old.type, [start, total])

    def _outside(self, builder: Builder, ids: Mapping[int, int], loop: int, old: Node, i: int) -> int:
        """Return a series as a value after the loop."""
        array = self._series[i].array
        if array is not None:
            value = ids[self._node.operands[array]]
            same = builder[value].type == self._type(i)
            return value if same else builder.derive(old, "reshape", self._type(i), [value])
        index = len(self._left) + self._stacked.index(i)
        return builder.derive(old, "get-tuple-element", self._type(i), [loop], {"index": index})


_SIDES, _KINDS = ("lhs", "rhs"), ("contracting", "batch")


def _alike(a: Sequence[int], b: Sequence[int]) -> bool:
    """Return whether dimensions differ at most in ones."""
    return [n for n in a if n != 1] == [n for n in b if n != 1]


def _swapped(builder: Builder, product: int, move: Node) -> int | None:
    """Return a product of two matrices whose rows and columns are changed over: of the other by the one."""
    node = builder[product]
    is_matrix = node.op == "dot" and not node.attributes.get("lhs_batch_dims") and len(node.tensor.dims) == 2
    if not is_matrix or move.op != "transpose" or tuple(move.attributes["dimensions"]) != (1, 0):
        return None
    return builder.derive(node, "dot", move.type, node.operands[::-1], sides_exchanged(node.attributes))


def _joined(builder: Builder, origin: Node, i: int) -> int:
    """Return a series with the steps and the first dimension in one, as libraries have products."""
    t = builder[i].tensor
    return builder.derive(origin, "reshape", TensorType(t.dtype, (t.dims[0] * t.dims[1], *t.dims[2:])), [i])


def _numpy(dtype: str) -> np.dtype[Any]:
    """Return the NumPy type of counters, and of the operands of products, which may be narrower than their sums."""
    return ELEMENT_TYPES[dtype].numpy
