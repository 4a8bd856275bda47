"""Sorts of short rows written out in the bodies of loops: the place of an element is the number of those before it.

Each element is compared with each of its row, which counts those that come before it: smaller ones, and equal ones at
an earlier place, so that the sort is stable (enumeration sort; Knuth, The Art of Computer Programming, volume 3, 5.2).
The element for a place is the one whose count that is: the sum of all, zeros for the others. Both are reductions over
pairs, which kernels compute in vectors. XLA calls its comparator for one pair after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.graph.builder import Builder, copied
from jax_stitch.graph.maps import is_elementwise
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.sorts import Sort, sort_of
from jax_stitch.util.values import replace

LONGEST, MOST_PAIRS = 128, 1 << 16
"""The most elements of a row that is sorted so, and the most pairs of all rows."""

_BITS = {"f32": "u32", "f64": "u64", "s32": "s32", "u32": "u32", "s64": "s64", "u64": "u64"}
"""The integers of which an element is summed with zeros: a float's bits, so that zeros keep their signs."""


def with_ranked_sorts(graph: Graph) -> Graph:
    """Return the graph with each sort of short rows written out."""
    found = {n.id: sort for n in graph.nodes if (sort := _short_sort(graph, n)) is not None}
    if not found:
        return graph
    results: dict[int, list[int]] = {}

    def instead(builder: Builder, node: Node, ids: dict[int, int]) -> int | None:
        if node.op == "get-tuple-element" and node.operands[0] in results:
            return results[node.operands[0]][node.attributes["index"]]
        if node.id not in found:
            return None
        results[node.id] = _Rows(builder, node, [ids[o] for o in node.operands], found[node.id]).sorted()
        return results[node.id][0]

    return copied(graph, instead)


def _short_sort(graph: Graph, node: Node) -> Sort | None:
    sort = sort_of(graph, node)
    if sort is None or sort.size > LONGEST or not _orders(node.graphs["to_apply"]):
        return None
    arrays = [graph[o].tensor for o in node.operands]
    fits = arrays[0].size * sort.size <= MOST_PAIRS and all(a.dtype in _BITS for a in arrays)
    return sort if fits and arrays[0].size > 0 else None


def _orders(comparator: Graph) -> bool:
    """Return whether a comparator says of any two elements which comes first, or that they are equal: a plain
    comparison of floats does not of NaN, whose place would then be another element's.
    """
    for node in comparator.nodes:
        if node.op == "compare" and node.attributes["direction"] not in ("EQ", "NE"):
            is_float = ELEMENT_TYPES[comparator[node.operands[0]].tensor.dtype].kind == "float"
            if is_float and node.attributes.get("type") != "TOTALORDER":
                return False
    return is_elementwise(comparator)


def _sides(comparator: Graph) -> Mapping[int, frozenset[int]]:
    """Return which of the two elements each node of a comparator depends on."""
    sides: dict[int, frozenset[int]] = {p: frozenset({k % 2}) for k, p in enumerate(comparator.parameters)}
    for node in comparator.nodes:
        sides.setdefault(node.id, frozenset(s for o in node.operands for s in sides[o]))
    return sides


class _Rows:
    """The rows that are sorted. Arrays of pairs have two dimensions in place of the sorted one: the first is summed
    over.
    """

    def __init__(self, builder: Builder, node: Node, arrays: Sequence[int], sort: Sort):
        self._builder, self._node, self._arrays = builder, node, arrays
        self._comparator = node.graphs["to_apply"]
        self._axis, self._dims = sort.dimension, builder[arrays[0]].tensor.dims
        self._pairs = (*self._dims[: self._axis], sort.size, sort.size, *self._dims[self._axis + 1 :])
        self._sides = _sides(self._comparator)
        self._single: dict[int, int] = {}

    def sorted(self) -> list[int]:
        """Add the sorted arrays, and return their ids."""
        other, own = self._axis, self._axis + 1
        before, after = self._compared((other, own)), self._compared((own, other))
        numbers = [self._derive("iota", "s32", self._pairs, [], {"iota_dimension": d}) for d in (other, own)]
        earlier = self._derive("compare", "pred", self._pairs, numbers, {"direction": "LT"})
        not_after = self._derive("not", "pred", self._pairs, [after])
        tied = self._derive("and", "pred", self._pairs, [earlier, not_after])
        counted = self._derive("or", "pred", self._pairs, [before, tied])
        rank = self._sum(self._derive("convert", "s32", self._pairs, [counted]))
        found = self._derive(
            "compare", "pred", self._pairs, [self._along(rank, other), numbers[1]], {"direction": "EQ"}
        )
        return [self._picked(array, found) for array in self._arrays]

    def _picked(self, array: int, found: int) -> int:
        """Add the elements of an array at the places where their pairs are ``found``."""
        dtype = self._builder[array].tensor.dtype
        bits = _BITS[dtype]
        value = array if bits == dtype else self._derive("bitcast-convert", bits, self._dims, [array])
        zeros = self._filled(self._zero(bits), self._pairs)
        chosen = self._derive("select", bits, self._pairs, [found, self._along(value, self._axis), zeros])
        total = self._sum(chosen)
        return total if bits == dtype else self._derive("bitcast-convert", dtype, self._dims, [total])

    def _compared(self, axes: tuple[int, int]) -> int:
        """Add the comparator of all pairs; ``axes`` are the dimensions along which its two elements lie."""
        made: dict[int, int] = {}
        for inner in self._comparator.nodes:
            sides = self._sides[inner.id]
            if not sides and inner.op == "constant":
                made[inner.id] = self._filled(self._builder.add(inner), self._pairs)
            elif len(sides) == 1:
                (side,) = sides
                made[inner.id] = self._along(self._of_one(inner.id), axes[side])
            else:
                made[inner.id] = self._elementwise(inner, [made[o] for o in inner.operands], self._pairs)
        return made[self._comparator.results[0]]

    def _of_one(self, i: int) -> int:
        """Add what the comparator computes of one of its elements alone, once for each element."""
        inner = self._comparator[i]
        if i in self._comparator.parameters:
            return self._arrays[self._comparator.parameters.index(i) // 2]
        if i not in self._single:
            if inner.op == "constant":
                self._single[i] = self._filled(self._builder.add(inner), self._dims)
            else:
                self._single[i] = self._elementwise(inner, [self._of_one(o) for o in inner.operands], self._dims)
        return self._single[i]

    def _along(self, value: int, axis: int) -> int:
        """Add the pairs of a value's elements, which lie along one of the two dimensions."""
        rank = len(self._dims)
        kept = tuple(axis if d == self._axis else d + (d > self._axis) for d in range(rank))
        return self._derive("broadcast", self._builder[value].tensor.dtype, self._pairs, [value], {"dimensions": kept})

    def _sum(self, pairs: int) -> int:
        zero = self._zero(self._builder[pairs].tensor.dtype)
        return self._builder.reduce(self._node, "add", [pairs, zero], (self._axis,))

    def _zero(self, dtype: str) -> int:
        return self._builder.constant(self._node, dtype, np.zeros((), ELEMENT_TYPES[dtype].numpy))

    def _filled(self, scalar: int, dims: tuple[int, ...]) -> int:
        return self._derive("broadcast", self._builder[scalar].tensor.dtype, dims, [scalar], {"dimensions": ()})

    def _elementwise(self, inner: Node, operands: Sequence[int], dims: tuple[int, ...]) -> int:
        type_, node = TensorType(inner.tensor.dtype, dims), self._node
        own = replace(inner, id=-1, type=type_, operands=tuple(operands), kernel=node.kernel, name=node.name)
        return self._builder.add(replace(own, source=node.source, scope=node.scope))

    def _derive(
        self,
        op: str,
        dtype: str,
        dims: tuple[int, ...],
        operands: Sequence[int],
        attributes: Mapping[str, object] = MappingProxyType({}),
    ) -> int:
        return self._builder.derive(self._node, op, TensorType(dtype, dims), operands, attributes)
