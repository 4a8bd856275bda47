"""One iteration of a loop over tiles, as a graph: the tile of each value of a stream, and what it does to what the loop
carries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from jax_stitch.devices import Device
from jax_stitch.fusion.streams.masks import is_exponential
from jax_stitch.fusion.streams.separation import Form, Kind
from jax_stitch.fusion.streams.stream import Key, Stream
from jax_stitch.fusion.streams.tiles import FIRST, PER_LANE, PER_STEP, Shape, Tiles
from jax_stitch.fusion.streams.tiling import Tiling
from jax_stitch.graph.builder import Builder, freeze
from jax_stitch.graph.combiners import combines_by
from jax_stitch.graph.model import Graph, GraphLayouts, Node, TensorType
from jax_stitch.graph.products import has_default_precision
from jax_stitch.loops.teams.fragments import COLUMNS, ROWS

COUNTER = TensorType("s32", ())
"""The type of what counts tiles."""

Arrays = dict[tuple[Key, bool], TensorType]
"""The leaves that a loop reads, and whether their own dimensions come first; the types of what it is given of them."""


class Running(Struct, frozen=True):
    """A value that is carried: combined ``by`` an operation over the tiles so far, from ``before`` to ``after``."""

    by: str
    before: int
    after: int


class Sum(Struct, frozen=True):
    """A reduction: the number of its running value, and of the running maximum that scales it."""

    running: int
    scale: int | None = None


class TileBody:
    """One iteration: the tile of each member, and what it does to the values carried."""

    def __init__(
        self, stream: Stream, tiling: Tiling, known: Mapping[Key, Form], origin: Node, types: Arrays, device: Device
    ):
        self.stream, self.known, self._arrays = stream, known, dict[tuple[Key, bool], int]()
        self._device = device
        self.builder = Builder("tile")
        self.tiles = Tiles(self.builder, stream, tiling, origin)
        self.counter = self.builder.parameter(COUNTER)
        for array, type_ in types.items():
            self._arrays[array] = self.builder.parameter(type_)
        self._start = self.tiles.each("multiply", self.counter, self.tiles.number("s32", tiling.step))
        self.running: list[Running] = []
        self._maxima: dict[tuple[str, int], int] = {}
        self._members: dict[Key, int] = {}
        self._is_inside: int | None = None
        self._scaled: dict[tuple[int, int], int] = {}
        self.sums: dict[Key, Sum] = {}
        for key in stream.reductions:
            with self.tiles.named_as(stream.graph[key.node]):
                self.sums[key] = self._sum(key)

    # -- tiles

    def leaf(self, key: Key, *, own_first: bool = False) -> int:
        """Return the tile of what lies in memory; one number stays one."""
        number = number_of(self.stream.graph[key.node])
        if number is not None:
            return self.tiles.number(*number)
        array = self._arrays[key, own_first]
        if self.stream.has_axis(key):
            array = self.tiles.cut(array, key, self._start)
        elif packs(self._device):
            return array
        return self.tiles.arranged(array, key, own_first=own_first)

    def free(self, key: Key) -> int:
        """Return the tile of the free part of a value."""
        if key not in self._members:
            with self.tiles.named_as(self.stream.graph[key.node]):
                self._members[key] = self._tile(key) if key in self.stream.operands else self.leaf(key)
        return self._members[key]

    def _wide(self, key: Key) -> int:
        """Return the same with all dimensions of a tile."""
        return self.tiles.widened(self.free(key), self.shape(key), PER_STEP)

    def _inside(self, key: Key, past: float) -> int:
        """Return the same, and ``past`` at elements after the end of the axis."""
        i, t = self._wide(key), self.tiles
        if not t.tiling.is_ragged:
            return i
        if self._is_inside is None:
            here = t.add("iota", TensorType("s32", t.dims(PER_STEP)), [], iota_dimension=1)
            place = t.each("add", t.spread(self._start, t.type(here).dims, ()), here)
            self._is_inside = t.compared(place, "LT", t.like(place, t.tiling.axis.size))
        return t.add("select", t.type(i), [self._is_inside, i, t.like(i, past)])

    def shape(self, key: Key) -> Shape:
        """Return the dimensions of a free part: what is scaled has those of the maximum that scales it."""
        return PER_STEP if self.known[key].kind is Kind.SCALED else self.tiles.shape(key)

    def _tile(self, key: Key) -> int:
        node, operands = self.stream.graph[key.node], self.stream.operands[key]
        if node.op == "iota":
            return self.tiles.iota(key, self._start)
        if node.op == "dot":
            return self._product(node, operands)
        if node.op == "exponential" and self.known[key].exponent == operands[0]:
            x = self._inside(operands[0], -np.inf)
            scale = self.tiles.widened(self._finite(self._maximum(operands[0])), PER_LANE, PER_STEP)
            return self.tiles.each("exponential", self.tiles.each("subtract", x, scale))
        free = [None if self.known[o].kind is Kind.ROW else self.free(o) for o in operands]
        shapes = [self.shape(o) for o in operands]
        return self.tiles.elementwise(key, free, shapes, self.shape(key))

    def _product(self, node: Node, operands: Sequence[Key]) -> int:
        """Return a product that each tile needs, contracted over its operands' own dimension."""
        along, beside = sorted(operands, key=lambda o: not self.stream.has_axis(o))
        t, made = self.tiles, TensorType(node.tensor.dtype, self.tiles.dims(PER_STEP))
        left = self.with_rows(self.leaf(along), along)
        own_first = packs(self._device)
        right = self.with_rows(self.leaf(beside, own_first=own_first), beside)
        factors = self._rounded(node, left, right, t.type(left).dims[2], made.dims[1:])
        return t.builder.derive(t.origin, "dot", made, factors, _contracting(node, 2, 1 if own_first else 2))

    def _rounded(self, node: Node, left: int, right: int, steps: int, places: Sequence[int]) -> list[int]:
        """Return the factors of a product, in the precision of the tensor cores where these take its tiles."""
        t = self.tiles
        unit = self._device.matrix_unit(t.type(left).dtype) if has_default_precision(node) else None
        if len(places) != 2:  # By a vector.
            return [left, right]
        runs, lanes = sorted(places, key=lambda n: n % ROWS > 0)
        fits = unit is not None and steps % unit.steps == 0 and runs % ROWS == 0 and lanes % COLUMNS == 0
        if unit is None or not fits or t.type(left).dtype != t.type(right).dtype:
            return [left, right]
        bits = {"exponent_bits": unit.bits[0], "mantissa_bits": unit.bits[1]}
        return [t.add("reduce-precision", t.type(i), [i], **bits) for i in (left, right)]

    def with_rows(self, i: int, key: Key) -> int:
        """Return a tile with own dimensions, for each row."""
        dims = self.tiles.type(i).dims
        if self.tiles.tiling.has_rows(key.binding):
            return i
        return self.tiles.spread(i, (self.tiles.tiling.rows, *dims), range(1, len(dims) + 1))

    # -- what is carried

    def _run(self, by: str, tile: int) -> int:
        """Carry a value that each tile is combined with; return its number."""
        before = self.builder.parameter(self.tiles.type(tile))
        self.running.append(Running(by, before, self.tiles.each(by, before, tile)))
        return len(self.running) - 1

    def _maximum(self, key: Key, by: str = "maximum") -> int:
        """Return the number of the extremum of a value over the tiles so far."""
        x = self._inside(key, FIRST[by])
        if (by, x) not in self._maxima:
            self._maxima[by, x] = self._run(by, self.tiles.combined(by, x))
        return self._maxima[by, x]

    def _finite(self, number: int) -> int:
        """Return a running maximum, but zero where all so far is minus infinity: then exponentials are zero too."""
        t, maximum = self.tiles, self.running[number].after
        lowest = t.like(maximum, -np.inf)
        is_lowest = t.compared(maximum, "EQ", lowest)
        return t.add("select", t.type(maximum), [is_lowest, t.like(maximum, 0.0), maximum])

    def _summed(self, key: Key) -> int:
        """Return the tile of what is summed up, zero past the end; exponentials are zero there."""
        return self._wide(key) if self._known_exponential(key) else self._inside(key, 0.0)

    def _known_exponential(self, key: Key) -> bool:
        return self.known[key].exponent is not None and is_exponential(self.stream, self.known, key)

    def _sum(self, key: Key) -> Sum:
        node, operands = self.stream.graph[key.node], self.stream.operands[key]
        by = "add" if node.op == "dot" else combines_by(node.graphs["to_apply"], 0)
        assert by is not None
        if by != "add":
            return Sum(self._maximum(operands[0], by))
        t, dtype = self.tiles, accumulated(node.tensor.dtype)
        if node.op == "dot":
            term, other = sorted(operands, key=lambda o: o not in self.stream.operands)
            right = self.with_rows(self.leaf(other), other)
            made = TensorType(dtype, (*t.dims(PER_LANE), *t.type(right).dims[2:]))
            attributes = _contracting(node, 1, 1)
            factors = self._rounded(node, self._summed(term), right, t.tiling.step, made.dims[1:])
            tile = t.builder.derive(t.origin, "dot", made, factors, attributes)
        else:
            term = operands[0]
            tile = t.combined("add", t.converted(self._summed(term), dtype))
        exponent = self.known[term].exponent
        if exponent is None:
            return Sum(self._run("add", tile))
        scale = self._maximum(exponent)
        if (tile, scale) in self._scaled:  # The same but for what is multiplied at the end.
            return Sum(self._scaled[tile, scale], scale)
        before = self.builder.parameter(t.type(tile))
        change = t.each("subtract", self.running[scale].before, self._finite(scale))
        factor = t.converted(t.each("exponential", change), dtype)
        own = t.type(tile).dims[2:]
        factor = t.spread(factor, (*t.dims(PER_LANE), *own), (0, 1))
        number = self._scaled[tile, scale] = len(self.running)
        after = t.each("add", t.each("multiply", before, factor), tile)
        self.running.append(Running("add", before, after))
        return Sum(number, scale)

    def graph(self, changes: int | None) -> Graph:
        """Return the body: the counter, the arrays and the values carried, after the iteration. Of rows for which
        ``changes`` does not hold they are as before.
        """
        t = self.tiles
        results = {self.counter: t.each("add", self.counter, t.number("s32", 1))}
        for r in self.running:
            after, type_ = r.after, t.type(r.after)
            if changes is not None:
                after = t.add("select", type_, [t.spread(changes, type_.dims, (0,)), after, r.before])
            results[r.before] = after
        return self.builder.finish([results.get(p, p) for p in self.builder.parameters], False, GraphLayouts())


def packs(device: Device) -> bool:
    """Return whether what does not change from tile to tile is arranged before a loop. Where lanes have shared memory
    the loop copies each tile there, in whatever order it lies.
    """
    return device.target.lanes_are_vectors


def accumulated(dtype: str) -> str:
    """Return the type in which values of one are summed up."""
    return "f32" if dtype in ("bf16", "f16") else dtype


def number_of(node: Node) -> tuple[str, np.ndarray] | None:
    """Return the type and value of a constant that is one number."""
    if node.literal is None or node.literal.size != 1 or node.tensor.dims:
        return None
    return node.tensor.dtype, node.literal.reshape(())


def _contracting(node: Node, left: int, right: int) -> Mapping[str, object]:
    """Return the attributes of a product of tiles, row by row, over these dimensions."""
    kept = {k: v for k, v in node.attributes.items() if not k.endswith("_dims")}
    batch = {"lhs_batch_dims": (0,), "rhs_batch_dims": (0,)}
    return freeze({**kept, **batch, "lhs_contracting_dims": (left,), "rhs_contracting_dims": (right,)})
