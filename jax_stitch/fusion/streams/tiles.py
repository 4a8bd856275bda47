"""Tiles of values in a graph under construction: arrays ``[rows, own, steps, lanes]`` or ``[rows, steps, lanes, own]``,
without the dimensions of axes that a value does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from hlo_parser import ELEMENT_TYPES
from jax_stitch.analysis.binding import Factor
from jax_stitch.fusion.streams.stream import MOVES, Key, Stream
from jax_stitch.fusion.streams.tiling import Tiling
from jax_stitch.graph.builder import Builder
from jax_stitch.graph.model import Node, TensorType
from jax_stitch.util.values import replace

Shape = tuple[bool, bool, bool]
"""The dimensions of a tile, in their order: rows, steps and lanes; True for each that a value has."""

PER_LANE: Shape = (True, False, True)
PER_STEP: Shape = (True, True, True)


FIRST = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf, "or": False}
"""The neutral value of each operation that combines."""


class Tiles:
    """Adds operations on tiles to a graph. ``origin`` is the node that they stand for."""

    def __init__(self, builder: Builder, stream: Stream, tiling: Tiling, origin: Node):
        self.builder, self.stream, self.tiling, self.origin = builder, stream, tiling, origin

    @contextmanager
    def named_as(self, node: Node) -> Iterator[None]:
        """Have what is added meanwhile stand for a node, with its name and source, in no kernel of XLA's."""
        outer, self.origin = self.origin, replace(node, kernel="")
        yield
        self.origin = outer

    def add(self, op: str, type_: TensorType, operands: Sequence[int], **attributes: Any) -> int:
        """Add an operation."""
        return self.builder.derive(self.origin, op, type_, operands, attributes)

    def type(self, i: int) -> TensorType:
        """Return the type of a value."""
        return self.builder[i].tensor

    def each(self, op: str, *operands: int) -> int:
        """Add an elementwise operation on values of one type."""
        return self.add(op, self.type(operands[-1]), operands)

    def number(self, dtype: str, value: Any, dims: Sequence[int] = ()) -> int:
        """Return a number, everywhere in an array."""
        literal = np.asarray(value).astype(ELEMENT_TYPES[dtype].numpy)
        return self.spread(self.builder.constant(self.origin, dtype, literal), dims, ())

    def like(self, i: int, value: Any) -> int:
        """Return a number everywhere in an array like another one."""
        return self.number(self.type(i).dtype, value, self.type(i).dims)

    def converted(self, i: int, dtype: str) -> int:
        """Return a value in another type."""
        type_ = self.type(i)
        return i if type_.dtype == dtype else self.add("convert", TensorType(dtype, type_.dims), [i])

    def compared(self, a: int, direction: str, b: int) -> int:
        """Return whether a comparison holds: ``EQ`` or ``NE``."""
        return self.add("compare", TensorType("pred", self.type(a).dims), [a, b], direction=direction)

    def corners(self, i: int, dims: Sequence[int]) -> int:
        """Return the first and last elements along some dimensions."""
        type_ = self.type(i)
        bounds = tuple((0, n, max(1, n - 1) if d in dims else 1) for d, n in enumerate(type_.dims))
        sizes = tuple(min(n, 2) if d in dims else n for d, n in enumerate(type_.dims))
        return self.add("slice", TensorType(type_.dtype, sizes), [i], slice=bounds)

    def reshaped(self, i: int, dims: Sequence[int]) -> int:
        """Return a value with other dimensions."""
        type_ = self.type(i)
        return i if type_.dims == tuple(dims) else self.add("reshape", TensorType(type_.dtype, tuple(dims)), [i])

    def transposed(self, i: int, order: Sequence[int]) -> int:
        """Return a value with its dimensions in another order."""
        type_ = self.type(i)
        if list(order) == sorted(order):
            return i
        dims = tuple(type_.dims[d] for d in order)
        return self.add("transpose", TensorType(type_.dtype, dims), [i], dimensions=tuple(order))

    def spread(self, i: int, dims: Sequence[int], at: Sequence[int]) -> int:
        """Return a value whose dimensions are those at ``at`` of more."""
        type_ = self.type(i)
        if type_.dims == tuple(dims):
            return i
        return self.add("broadcast", TensorType(type_.dtype, tuple(dims)), [i], dimensions=tuple(at))

    def combined(self, op: str, i: int, over: Sequence[int] = (1,)) -> int:
        """Return a tile combined over some of its dimensions, the steps if nothing else is said."""
        type_ = self.type(i)
        return self.builder.reduce(self.origin, op, [i, self.number(type_.dtype, FIRST[op])], over)

    # -- the form of tiles

    def shape(self, key: Key) -> Shape:
        """Return which dimensions a value has."""
        t = self.tiling
        return t.has_rows(key.binding), t.has_axis(key.binding), t.has_lanes(key.binding)

    def dims(self, shape: Shape) -> tuple[int, ...]:
        """Return the dimensions of a tile."""
        sizes = self.tiling.rows, self.tiling.step, self.tiling.lanes
        return tuple(n for n, has in zip(sizes, shape, strict=True) if has)

    def widened(self, i: int, has: Shape, wanted: Shape) -> int:
        """Return a tile with more dimensions, along which it is the same."""
        kept = [k for k in range(3) if wanted[k]]
        return self.spread(i, self.dims(wanted), [n for n, k in enumerate(kept) if has[k]])

    def divided(self, i: int, key: Key) -> int:
        """Return a value in memory with a dimension for each of its axes, and two for the axis of the lanes."""
        t, parts, axes = self.tiling, self.tiling.parts(key.binding), self._axes(key)
        i = self.reshaped(i, [f.size for f in parts])
        i = self.transposed(i, sorted(range(len(parts)), key=lambda d: axes.index(parts[d])))
        i = self._lengthened(i, [{t.axis: t.steps * t.step, t.lane: t.tiles * t.lanes}.get(f, f.size) for f in axes])
        dims = list[int]()
        for f, n in zip(axes, self.type(i).dims, strict=True):
            dims += [t.tiles, t.lanes] if f == t.lane else [n]
        return self.reshaped(i, dims)

    def _axes(self, key: Key) -> tuple[Factor, ...]:
        """Return the axes of a divided value, major to minor. Dimensions of its own come last in a factor of a product
        that is summed up: along them lie the lanes of its sums.
        """
        parts, stream = self.tiling.parts(key.binding), self.stream
        if not any(stream.graph[r.node].op == "dot" and key in stream.operands[r] for r in stream.reductions):
            return parts
        return (*(f for f in parts if f.stride is not None), *(f for f in parts if f.stride is None))

    def _lengthened(self, i: int, dims: Sequence[int]) -> int:
        """Return a value with zeros after its ends."""
        type_ = self.type(i)
        if type_.dims == tuple(dims):
            return i
        padding = tuple((0, n - has, 0) for n, has in zip(dims, type_.dims, strict=True))
        zero = self.number(type_.dtype, 0)
        return self.add("pad", TensorType(type_.dtype, tuple(dims)), [i, zero], padding=padding)

    def cut(self, i: int, key: Key, start: int) -> int:
        """Return the elements from ``start`` of the axis on, of a divided value."""
        parts = self._axes(key)
        at = parts.index(self.tiling.axis)
        at += self.tiling.lane in parts[:at]
        type_ = self.type(i)
        dims = tuple(self.tiling.step if d == at else n for d, n in enumerate(type_.dims))
        zero = self.number("s32", 0)
        starts = [start if d == at else zero for d in range(len(dims))]
        made = TensorType(type_.dtype, dims)
        return self.add("dynamic-slice", made, [i, *starts], dynamic_slice_sizes=dims)

    def arranged(self, i: int, key: Key, *, own_first: bool) -> int:
        """Return a divided value as a tile, whose own dimensions, as one, are before the steps and lanes or after."""
        t = self.tiling
        at: dict[Factor, int] = {}
        own, position = list[int](), 0
        for f in self._axes(key):
            if f.stride is None:
                own.append(position)
            else:
                at[f] = position
            position += 2 if f == t.lane else 1
        rows = [f for f in (*t.grid, t.lane) if f in at]
        inner = [at[t.axis]] if t.axis in at else []
        inner += [at[t.lane] + 1] if t.lane in at else []
        dims = self.type(i).dims
        own_size = [prod(dims[d] for d in own)] if own else []
        sizes = [dims[d] for d in inner]
        tail = [*own_size, *sizes] if own_first else [*sizes, *own_size]
        i = self.transposed(i, [*(at[f] for f in rows), *(own + inner if own_first else inner + own)])
        if not rows:
            return self.reshaped(i, tail)
        i = self.reshaped(i, [*(self._count(f) for f in rows), *tail])
        every = [self._count(f) for f in (*t.grid, t.lane)]
        has = [n for n, f in enumerate((*t.grid, t.lane)) if f in at]
        i = self.spread(i, [*every, *tail], [*has, *range(len(every), len(every) + len(tail))])
        return self.reshaped(i, [t.rows, *tail])

    def _count(self, f: Factor) -> int:
        return self.tiling.tiles if f == self.tiling.lane else f.size

    def in_memory(self, i: int, key: Key, node: Node) -> int:
        """Return tiles ``[rows, lanes, own]`` as the value of a node, the inverse of ``divided`` and ``arranged``."""
        t, parts = self.tiling, self.tiling.parts(key.binding)
        own = [f for f in parts if f.stride is None]
        every = [*t.grid, t.lane]
        i = self.reshaped(i, [*(self._count(f) for f in every), t.lanes, *(f.size for f in own)])
        dims = self.type(i).dims
        gone = [n for n, f in enumerate(every) if f not in parts]
        i = self._shortened(i, [1 if d in gone else n for d, n in enumerate(dims)])
        i = self.reshaped(i, [n for d, n in enumerate(dims) if d not in gone])
        kept = [f for f in every if f in parts]
        at = {f: n for n, f in enumerate(kept)}
        order, own_at = list[int](), len(kept) + 1
        for f in parts:
            if f.stride is None:
                order.append(own_at)
                own_at += 1
            else:
                order += [at[f], len(kept)] if f == t.lane else [at[f]]
        i = self.transposed(i, order)
        if t.lane in parts:
            i = self.reshaped(i, [t.tiles * t.lanes if f == t.lane else f.size for f in parts])
            i = self._shortened(i, [f.size for f in parts])
        return self.reshaped(i, node.tensor.dims)

    def _shortened(self, i: int, dims: Sequence[int]) -> int:
        """Return the first elements of a value along its dimensions."""
        type_ = self.type(i)
        if type_.dims == tuple(dims):
            return i
        return self.add("slice", TensorType(type_.dtype, tuple(dims)), [i], slice=tuple((0, n, 1) for n in dims))

    # -- members

    def elementwise(self, key: Key, operands: Sequence[int | None], shapes: Sequence[Shape], shape: Shape) -> int:
        """Return a member of the stream from its operands; those that are None are applied at the end."""
        node = self.stream.graph[key.node]
        may_be_one = {"select": (0,), "clamp": (0, 2)}.get(node.op, ())
        wide: list[int | None] = []
        for k, (o, has) in enumerate(zip(operands, shapes, strict=True)):
            is_one = o is not None and k in may_be_one and not self.type(o).dims
            wide.append(o if o is None or is_one else self.widened(o, has, shape))
        left = [o for o in wide if o is not None]
        if node.op in MOVES:
            return left[0]
        if len(left) == len(wide):
            made = TensorType(node.tensor.dtype, self.dims(shape))
            return self.builder.derive(self.origin, node.op, made, left, node.attributes)
        (only,) = left
        only = self.converted(only, node.tensor.dtype)
        if wide[0] is None and node.op == "subtract":
            return self.each("negate", only)
        if wide[0] is None and node.op == "divide":
            return self.each("divide", self.like(only, 1), only)
        return only

    def iota(self, key: Key, start: int | None) -> int:
        """Return the indices along a dimension, in a tile that begins at ``start`` of the axis."""
        node, t = self.stream.graph[key.node], self.tiling
        counted = t.parts((key.binding[node.attributes["iota_dimension"]],))
        type_ = TensorType("s32", self.dims(self.shape(key)))
        weight, parts = prod(f.size for f in counted), list[int]()
        for f in counted:
            weight //= f.size
            part = self._digit(f, self.shape(key), type_, start)
            parts.append(part if weight == 1 else self.each("multiply", part, self.like(part, weight)))
        total = reduce(lambda a, b: self.each("add", a, b), parts)
        return self.converted(total, node.tensor.dtype)

    def _digit(self, f: Factor, shape: Shape, type_: TensorType, start: int | None) -> int:
        """Return the index along one axis."""
        t = self.tiling
        place = {k: n for n, k in enumerate(k for k in range(3) if shape[k])}
        if f == t.axis:
            assert start is not None
            here = self.add("iota", type_, [], iota_dimension=place[1])
            return self.each("add", self.spread(start, type_.dims, ()), here)
        row = self.row(f, self.add("iota", type_, [], iota_dimension=place[0]))
        if f != t.lane:
            return row
        first = self.each("multiply", row, self.like(row, t.lanes))
        return self.each("add", first, self.add("iota", type_, [], iota_dimension=place[2]))

    def row(self, f: Factor, row: int) -> int:
        """Return the index of rows along an axis of the grid, or which tile of the lanes' axis they are."""
        t = self.tiling
        every = [*t.grid, t.lane]
        after = prod(self._count(g) for g in every[every.index(f) + 1 :])
        if after > 1:
            row = self.each("divide", row, self.like(row, after))
        if after * self._count(f) < t.rows:
            row = self.each("remainder", row, self.like(row, self._count(f)))
        return row
