"""Operations on batches of small matrices, added to a graph under construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hlo_parser import ELEMENT_TYPES

from .builder import Builder
from .model import Node, TensorType


class Matrices:
    """Operations in place of ``origin``, whose first operand is ``first``: matrices, or vectors of integers, the last
    dimensions of which are those of one matrix or vector.
    """

    def __init__(self, builder: Builder, origin: Node, first: int) -> None:
        self._builder, self._origin = builder, origin
        dims, is_matrix = self.dims(first), ELEMENT_TYPES[self.dtype(first)].kind == "float"
        self.batch: tuple[int, ...] = dims[:-2] if is_matrix else dims[:-1]

    def dims(self, value: int) -> tuple[int, ...]:
        """Return the size of a value."""
        return tuple(self._builder[value].tensor.dims)

    def dtype(self, value: int) -> str:
        """Return the element type of a value."""
        return self._builder[value].tensor.dtype

    def op(self, opcode: str, *operands: int) -> int:
        """Add an elementwise operation; its type is that of its last operand."""
        return self._builder.derive(self._origin, opcode, self._builder[operands[-1]].type, operands)

    def compare(self, direction: str, a: int, b: int) -> int:
        """Add a comparison."""
        return self._builder.derive(
            self._origin, "compare", TensorType("pred", self.dims(a)), [a, b], {"direction": direction}
        )

    def number(self, value: float, dtype: str, dims: Sequence[int]) -> int:
        """Add an array of one number."""
        constant = self._builder.constant(self._origin, dtype, np.asarray(value, ELEMENT_TYPES[dtype].numpy))
        return self._broadcast(constant, dims, ()) if dims else constant

    def spread(self, value: int, dims: Sequence[int]) -> int:
        """Add an array that has ``value`` at each place of the dimensions that it lacks at the end."""
        own = self.dims(value)
        return value if own == tuple(dims) else self._broadcast(value, dims, range(len(own)))

    def spread_line(self, line: int, like: int, axis: int) -> int:
        """Add matrices like another, each row (``axis`` -2) or column (-1) of which is ``line``."""
        batch = range(len(self.batch))
        return self._broadcast(line, self.dims(like), (*batch, len(batch) + (1 if axis == -2 else 0)))

    def outer(self, column: int, row: int) -> int:
        """Add the outer products of two batches of vectors."""
        dims = (*self.dims(column), self.dims(row)[-1])
        wide = self.spread(column, dims)
        return self.op("multiply", wide, self.spread_line(row, wide, -2))

    def line(self, value: int, number: int, axis: int) -> int:
        """Add a row (``axis`` -2) or column (-1) of matrices, or an element (-1) of vectors."""
        return self._cut(value, {axis: number})

    def element(self, value: int, row: int, column: int) -> int:
        """Add the element of each matrix in a row and column."""
        return self._cut(value, {-2: row, -1: column})

    def _cut(self, value: int, numbers: Mapping[int, int]) -> int:
        whole, dtype = self.dims(value), self.dtype(value)
        at = {len(whole) + axis: number for axis, number in numbers.items()}
        ranges = tuple((at[d], at[d] + 1, 1) if d in at else (0, n, 1) for d, n in enumerate(whole))
        cut = tuple(1 if d in at else n for d, n in enumerate(whole))
        if cut != whole:
            value = self._builder.derive(self._origin, "slice", TensorType(dtype, cut), [value], {"slice": ranges})
        left = tuple(n for d, n in enumerate(whole) if d not in at)
        return self._builder.derive(self._origin, "reshape", TensorType(dtype, left), [value])

    def joined(self, lines: Sequence[int], axis: int) -> int:
        """Add the matrices of these rows (``axis`` -2) or columns (-1), or the vectors of these numbers (-1)."""
        dims = list(self.dims(lines[0]))
        at = len(dims) + 1 + axis
        dims.insert(at, 1)
        dtype = self.dtype(lines[0])
        flat = [self._builder.derive(self._origin, "reshape", TensorType(dtype, tuple(dims)), [i]) for i in lines]
        if len(flat) == 1:
            return flat[0]
        dims[at] = len(lines)
        return self._builder.derive(
            self._origin, "concatenate", TensorType(dtype, tuple(dims)), flat, {"dimensions": (at,)}
        )

    def places(self, like: int, axis: int) -> int:
        """Add the number of each element's row (``axis`` -2) or column (-1)."""
        dims = self.dims(like)
        return self._iota(dims, len(dims) + axis)

    def counted(self, size: int) -> int:
        """Add vectors of the numbers below ``size``."""
        return self._iota((*self.batch, size), len(self.batch))

    def picked(self, condition: int, value: int, axis: int) -> int:
        """Add the one row (``axis`` -2) or element (-1) where a condition is true: its sum with zeros, exactly."""
        is_float = ELEMENT_TYPES[self.dtype(value)].kind == "float"
        nothing = self.number(-0.0 if is_float else 0, self.dtype(value), self.dims(value))
        return self.reduced("add", self.op("select", condition, value, nothing), axis, -0.0 if is_float else 0)

    def reduced(self, by: str, value: int, axis: int, start: float) -> int:
        """Add a reduction along an axis from its neutral value."""
        initial = self.number(start, self.dtype(value), ())
        return self._builder.reduce(self._origin, by, [value, initial], (len(self.dims(value)) + axis,))

    def _broadcast(self, value: int, dims: Sequence[int], dimensions: Sequence[int]) -> int:
        type_ = TensorType(self.dtype(value), tuple(dims))
        return self._builder.derive(self._origin, "broadcast", type_, [value], {"dimensions": tuple(dimensions)})

    def _iota(self, dims: Sequence[int], dimension: int) -> int:
        type_ = TensorType("s32", tuple(dims))
        return self._builder.derive(self._origin, "iota", type_, [], {"iota_dimension": dimension})
