"""Which of a scatter's updates are the first of their place, and for each update which is."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.graph.builder import Builder
from jax_stitch.graph.model import Graph, GraphLayouts, Node, TensorType

_ONE_EACH = {
    "update_window_dims": (),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
}
_LOOKED_UP = {
    "offset_dims": (),
    "collapsed_slice_dims": (0,),
    "start_index_map": (0,),
    "index_vector_dim": 1,
    "slice_sizes": (1,),
}


class FirstUpdates(Struct, frozen=True):
    """Values of a graph under construction."""

    indices: int
    """The scatter's indices; out of bounds but for the first of each place."""
    first: int
    """[updates, 1]: for each update the number of the first that goes to the same place, -1 for one out of bounds."""


def first_updates(builder: Builder, origin: Node, indices: int, sizes: Sequence[int]) -> FirstUpdates:
    """Return the first update of each place, by a table with a number for each place. ``indices`` are [updates,
    columns], of s32 or s64; ``sizes`` the places that each column counts.
    """
    write = _Writer(builder, origin, indices)
    inside, place = write.place(sizes)
    place = write.of("select", write.line, inside, place, write.number(-1, write.line))
    each = write.of("iota", write.line, iota_dimension=0)
    in_column = write.of("reshape", write.column, place)
    places = TensorType("s32", (prod(sizes),))
    empty = write.number(write.count, places)
    numbered = builder.derive(origin, "scatter", places, [empty, in_column, each], _ONE_EACH, {"to_apply": _least()})
    first = builder.derive(origin, "gather", write.line, [numbered, in_column], _LOOKED_UP)
    is_first = write.of("and", write.mask, inside, write.of("compare", write.mask, first, each, direction="EQ"))
    type_ = builder[indices].tensor
    spread = write.of("broadcast", TensorType("pred", type_.dims), is_first, dimensions=(0,))
    firsts = write.of("select", type_, spread, indices, write.number(-1, type_))
    first = write.of("select", write.line, inside, first, write.number(-1, write.line))
    return FirstUpdates(firsts, write.of("reshape", write.column, first))


class _Writer:
    def __init__(self, builder: Builder, origin: Node, indices: int) -> None:
        self._builder, self._origin, self._indices = builder, origin, indices
        self.count, self._width = builder[indices].tensor.dims
        self.line, self.column = TensorType("s32", (self.count,)), TensorType("s32", (self.count, 1))
        self.mask = TensorType("pred", (self.count,))

    def number(self, value: int, like: TensorType) -> int:
        """Return an array of one number."""
        scalar = self._builder.constant(self._origin, like.dtype, np.asarray(value, ELEMENT_TYPES[like.dtype].numpy))
        return self.of("broadcast", like, scalar, dimensions=())

    def of(self, op: str, type_: TensorType, *operands: int, **attributes: Any) -> int:
        """Return an operation."""
        return self._builder.derive(self._origin, op, type_, operands, attributes)

    def place(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Return, for each update, whether its indices are in bounds, and the number of its place."""
        place, inside = self.number(0, self.line), self.number(1, self.mask)
        for column, size in enumerate(sizes):
            own = self._index(column)
            type_ = self._builder[own].tensor
            for direction, bound in (("GE", 0), ("LT", size)):
                is_in = self.of("compare", self.mask, own, self.number(bound, type_), direction=direction)
                inside = self.of("and", self.mask, inside, is_in)
            at = own if type_ == self.line else self.of("convert", self.line, own)
            place = self.of("add", self.line, self.of("multiply", self.line, place, self.number(size, self.line)), at)
        return inside, place

    def _index(self, column: int) -> int:
        dtype, own = self._builder[self._indices].tensor.dtype, self._indices
        if self._width > 1:
            bounds = ((0, self.count, 1), (column, column + 1, 1))
            own = self.of("slice", TensorType(dtype, (self.count, 1)), own, slice=bounds)
        return self.of("reshape", TensorType(dtype, (self.count,)), own)


def _least() -> Graph:
    builder = Builder("least")
    sides = [builder.parameter(TensorType("s32", ()), name) for name in ("a", "b")]
    least = builder.add(Node(-1, "minimum", TensorType("s32", ()), tuple(sides)))
    return builder.finish([least], True, GraphLayouts())
