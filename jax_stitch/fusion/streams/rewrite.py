"""A region as a loop over tiles of its axis, whose sums are corrected as the maxima that they are scaled by grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
from msgspec import Struct

from jax_stitch.fusion.streams.region import Key, Region, depending
from jax_stitch.fusion.streams.separation import Form, Kind, Row, forms, separable
from jax_stitch.fusion.streams.tiles import PER_LANE, PER_STEP, Shape, Tiles
from jax_stitch.fusion.streams.tiling import Tiling
from jax_stitch.graph.builder import Builder, freeze, moved
from jax_stitch.graph.combiners import combines_by
from jax_stitch.graph.model import STREAMED, Graph, GraphLayouts, Node, TensorType, TupleType
from jax_stitch.util.values import replace

_COUNTER = TensorType("s32", ())
_FIRST = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf}


def streamed(region: Region, tiling: Tiling, seconds: float) -> Graph | None:
    """Return the graph with a region as a loop over tiles; None where its reductions cannot all run in one sweep.
    ``seconds`` are those that XLA takes for the region.
    """
    known = forms(region)
    return _Rewrite(region, tiling, known, seconds).graph() if separable(region, known) else None


class _Running(Struct, frozen=True):
    """A value that is carried: combined ``by`` an operation over the tiles so far, from ``before`` to ``after``."""

    by: str
    before: int
    after: int


class _Sum(Struct, frozen=True):
    """A reduction: the number of its running value, and of the running maximum that scales it."""

    running: int
    scale: int | None = None


class _Body:
    """One iteration: the tile of each member, and what it does to the values carried."""

    def __init__(self, region: Region, tiling: Tiling, known: Mapping[Key, Form], origin: Node, types: _Arrays):
        self.region, self.known, self._arrays = region, known, dict[tuple[Key, bool], int]()
        self.builder = Builder("tile")
        self.tiles = Tiles(self.builder, region, tiling, origin)
        self.counter = self.builder.parameter(_COUNTER)
        for array, type_ in types.items():
            self._arrays[array] = self.builder.parameter(type_)
        self._start = self.tiles.each("multiply", self.counter, self.tiles.number("s32", tiling.step))
        self.running: list[_Running] = []
        self._maxima: dict[tuple[str, int], int] = {}
        self._members: dict[Key, int] = {}
        self.sums = {key: self._sum(key) for key in region.reductions}

    # -- tiles

    def _leaf(self, key: Key, *, own_first: bool = False) -> int:
        """Return the tile of what lies in memory; one number stays one."""
        number = _number(self.region.graph[key.node])
        if number is not None:
            return self.tiles.number(*number)
        array = self._arrays[key, own_first]
        if not self.region.has_axis(key):
            return array
        return self.tiles.arranged(self.tiles.cut(array, key, self._start), key, own_first=own_first)

    def _free(self, key: Key) -> int:
        """Return the tile of the free part of a value."""
        if key not in self._members:
            self._members[key] = self._tile(key) if key in self.region.operands else self._leaf(key)
        return self._members[key]

    def _wide(self, key: Key) -> int:
        """Return the same with all dimensions of a tile."""
        return self.tiles.widened(self._free(key), self._shape(key), PER_STEP)

    def _shape(self, key: Key) -> Shape:
        """Return the dimensions of a free part: what is scaled has those of the maximum that scales it."""
        return PER_STEP if self.known[key].kind is Kind.SCALED else self.tiles.shape(key)

    def _tile(self, key: Key) -> int:
        node, operands = self.region.graph[key.node], self.region.operands[key]
        if node.op == "iota":
            return self.tiles.iota(key, self._start)
        if node.op == "dot":
            return self._product(node, operands)
        if node.op == "exponential" and self.known[key].exponent == operands[0]:
            x = self._wide(operands[0])
            scale = self.tiles.widened(self._finite(self._maximum(operands[0])), PER_LANE, PER_STEP)
            return self.tiles.each("exponential", self.tiles.each("subtract", x, scale))
        free = [None if self.known[o].kind is Kind.ROW else self._free(o) for o in operands]
        shapes = [self._shape(o) for o in operands]
        return self.tiles.elementwise(key, free, shapes, self._shape(key))

    def _product(self, node: Node, operands: Sequence[Key]) -> int:
        """Return a product that each tile needs, contracted over its operands' own dimension."""
        along, beside = sorted(operands, key=lambda o: not self.region.has_axis(o))
        t, made = self.tiles, TensorType(node.tensor.dtype, self.tiles.dims(PER_STEP))
        left = self._with_rows(self._leaf(along), along)
        right = self._with_rows(self._leaf(beside, own_first=True), beside)
        return t.builder.derive(t.origin, "dot", made, [left, right], _contracting(node, 2, 1))

    def _with_rows(self, i: int, key: Key) -> int:
        """Return a tile with own dimensions, for each row."""
        dims = self.tiles.type(i).dims
        if self.tiles.tiling.has_rows(key.binding):
            return i
        return self.tiles.spread(i, (self.tiles.tiling.rows, *dims), range(1, len(dims) + 1))

    # -- what is carried

    def _run(self, by: str, tile: int) -> int:
        """Carry a value that each tile is combined with; return its number."""
        before = self.builder.parameter(self.tiles.type(tile))
        self.running.append(_Running(by, before, self.tiles.each(by, before, tile)))
        return len(self.running) - 1

    def _maximum(self, key: Key, by: str = "maximum") -> int:
        """Return the number of the extremum of a value over the tiles so far."""
        x = self._wide(key)
        if (by, x) not in self._maxima:
            self._maxima[by, x] = self._run(by, self.tiles.combined(by, x))
        return self._maxima[by, x]

    def _finite(self, number: int) -> int:
        """Return a running maximum, but zero where all so far is minus infinity: then exponentials are zero too."""
        t, maximum = self.tiles, self.running[number].after
        lowest = t.like(maximum, -np.inf)
        is_lowest = t.compared(maximum, lowest)
        return t.add("select", t.type(maximum), [is_lowest, t.like(maximum, 0.0), maximum])

    def _sum(self, key: Key) -> _Sum:
        node, operands = self.region.graph[key.node], self.region.operands[key]
        by = "add" if node.op == "dot" else combines_by(node.graphs["to_apply"], 0)
        assert by is not None
        if by != "add":
            return _Sum(self._maximum(operands[0], by))
        t, dtype = self.tiles, accumulated(node.tensor.dtype)
        if node.op == "dot":
            term, other = sorted(operands, key=lambda o: o not in self.region.operands)
            right = self._with_rows(self._leaf(other), other)
            made = TensorType(dtype, (*t.dims(PER_LANE), *t.type(right).dims[2:]))
            attributes = _contracting(node, 1, 1)
            tile = t.builder.derive(t.origin, "dot", made, [self._wide(term), right], attributes)
        else:
            term = operands[0]
            tile = t.combined("add", t.converted(self._wide(term), dtype))
        exponent = self.known[term].exponent
        if exponent is None:
            return _Sum(self._run("add", tile))
        scale = self._maximum(exponent)
        before = self.builder.parameter(t.type(tile))
        change = t.each("subtract", self.running[scale].before, self._finite(scale))
        factor = t.converted(t.each("exponential", change), dtype)
        own = t.type(tile).dims[2:]
        factor = t.spread(factor, (*t.dims(PER_LANE), *own), (0, 1))
        number = len(self.running)
        after = t.each("add", t.each("multiply", before, factor), tile)
        self.running.append(_Running("add", before, after))
        return _Sum(number, scale)

    def graph(self) -> Graph:
        """Return the body: the counter, the arrays and the values carried, after the iteration."""
        following = self.tiles.each("add", self.counter, self.tiles.number("s32", 1))
        results = {self.counter: following, **{r.before: r.after for r in self.running}}
        return self.builder.finish([results.get(p, p) for p in self.builder.parameters], False, GraphLayouts())


_Arrays = dict[tuple[Key, bool], TensorType]
"""The leaves that a loop reads, and whether their own dimensions come first; the types of what it is given of them."""


class _Rewrite:
    """The rewriting of one region."""

    def __init__(self, region: Region, tiling: Tiling, known: Mapping[Key, Form], seconds: float):
        self._region, self._tiling, self._known, self._seconds = region, tiling, known, seconds
        graph = region.graph
        self._builder = Builder(graph.name)
        last = graph[region.reductions[-1].node]
        self._origin = replace(last, kernel="")
        self._tiles = Tiles(self._builder, region, tiling, self._origin)
        self._ids: dict[int, int] = {}
        self._totals: dict[Key, int] = {}
        self._rows: dict[Key, int] = {}

    def graph(self) -> Graph:
        """Return the graph: all that the region reads, the loop, and what reads its results."""
        graph, ids = self._region.graph, self._ids
        sums = {key.node: key for key in self._region.reductions}
        after = depending(graph, set(sums))
        ids.update({p: self._builder.parameter(graph[p].type, graph[p].name, graph[p].source) for p in graph.parameters})
        self._copy(n for n in graph.nodes if n.id not in after and n.id not in ids)
        body, running = self._loop()
        for n in graph.nodes:
            if n.id in sums:
                key = sums[n.id]
                self._rows[key] = total = self._total(key, n, body, running)
                ids[n.id] = self._tiles.in_memory(total, key, n)
            elif n.id in after:
                self._copy((n,))
        return self._builder.finish([ids[r] for r in graph.results], graph.single, graph.layouts)

    def _copy(self, nodes: Iterator[Node] | tuple[Node, ...]) -> None:
        for n in nodes:
            self._ids[n.id] = self._builder.add(moved(n, -1, tuple(self._ids[o] for o in n.operands)))

    def _loop(self) -> tuple[_Body, list[int]]:
        """Add the loop; return its body and its results, the running values."""
        arrays = {array: self._array(*array) for array in self._read()}
        types = {array: self._tiles.type(i) for array, i in arrays.items()}
        body = _Body(self._region, self._tiling, self._known, self._origin, types)
        graph = body.graph()
        first = {r.before: self._tiles.number(body.tiles.type(r.before).dtype, _FIRST[r.by]) for r in body.running}
        spread = {p: self._tiles.spread(i, body.tiles.type(p).dims, ()) for p, i in first.items()}
        given = [self._tiles.number("s32", 0), *arrays.values()]
        operands = given + [spread[p] for p in body.builder.parameters[len(given) :]]
        carried = TupleType(tuple(graph[p].type for p in graph.parameters))
        attributes = {"trip_count": self._tiling.steps, STREAMED: self._seconds / self._tiling.steps}
        graphs = {"body": graph, "condition": self._condition(carried)}
        loop = self._builder.derive(self._origin, "while", carried, operands, attributes, graphs)
        numbers = {p: k for k, p in enumerate(body.builder.parameters)}
        return body, [
            self._builder.derive(
                self._origin, "get-tuple-element", body.tiles.type(r.before), [loop], {"index": numbers[r.before]}
            )
            for r in body.running
        ]

    def _condition(self, carried: TupleType) -> Graph:
        builder = Builder("more_tiles")
        counter, *_ = [builder.parameter(t) for t in carried.elements]
        last = builder.constant(self._origin, "s32", np.asarray(self._tiling.steps, np.int32))
        truth = TensorType("pred", ())
        more = builder.derive(self._origin, "compare", truth, [counter, last], {"direction": "LT"})
        return builder.finish([more], True, GraphLayouts())

    def _read(self) -> list[tuple[Key, bool]]:
        """Return the leaves that the loop reads."""
        region, found = self._region, dict[tuple[Key, bool], None]()
        leaves = set(region.leaves())
        for key, operands in region.operands.items():
            if key in region.rows:
                continue
            is_product = region.graph[key.node].op == "dot" and key not in region.reductions
            reads = operands[:1] if region.graph[key.node].op == "reduce" else operands
            for o in reads:
                if o in leaves and _number(region.graph[o.node]) is None:
                    found[o, is_product and not region.has_axis(o)] = None
        return list(found)

    def _array(self, key: Key, own_first: bool) -> int:
        """Return what the loop is given of a leaf: what does not change from tile to tile is arranged before it."""
        array = self._tiles.divided(self._ids[key.node], key)
        if self._region.has_axis(key):
            return array
        return self._tiles.arranged(array, key, own_first=own_first)

    # -- after the loop

    def _total(self, key: Key, node: Node, body: _Body, running: Sequence[int]) -> int:
        """Return the tiles of a reduction's result."""
        t, made, operands = self._tiles, body.sums[key], self._region.operands[key]
        total = running[made.running]
        forms_of = [self._known[o] for o in (operands if node.op == "dot" else operands[:1])]
        form = next((f for f in forms_of if f.kind is not Kind.FREE), self._known[operands[0]])
        own = t.type(total).dims[2:]
        if form.kind is Kind.SHIFTED:
            assert form.shift is not None
            total = t.each("add", total, t.converted(self._row(form.shift), t.type(total).dtype))
        if made.scale is not None:
            exponent = running[made.scale]
            if form.shift is not None:
                exponent = t.each("add", exponent, t.converted(self._row(form.shift), t.type(exponent).dtype))
            total = self._times(total, t.each("exponential", exponent), own)
        if form.kind is Kind.SCALED and form.factor is not None:
            total = self._times(total, self._row(form.factor), own)
        total = t.converted(total, node.tensor.dtype)
        if node.op == "reduce":
            first = self._ids[operands[1].node]
            by = combines_by(node.graphs["to_apply"], 0)
            assert by is not None
            number = _number(self._region.graph[operands[1].node])
            if number is None or number[1] != _FIRST[by]:
                total = t.each(by, t.spread(first, t.type(total).dims, ()), total)
        return total

    def _times(self, total: int, factor: int, own: Sequence[int]) -> int:
        t = self._tiles
        factor = t.converted(factor, t.type(total).dtype)
        return t.each("multiply", total, t.spread(factor, (*t.dims(PER_LANE), *own), (0, 1)))

    def _row(self, row: Row) -> int:
        """Return a value along rows, for each row and lane."""
        t = self._tiles
        if isinstance(row, Key):
            i = self._row_member(row)
            return t.widened(i, _without_axis(t.shape(row)), PER_LANE)
        operands = [self._row(o) for o in row.operands]
        if row.op == "divide" and len(operands) == 1:
            operands.insert(0, t.like(operands[0], 1.0))
        if row.op == "negate":
            return t.each("negate", *operands)
        wide = t.type(operands[0]).dtype
        return reduce(lambda a, b: t.each(row.op, a, t.converted(b, wide)), operands)

    def _row_member(self, key: Key) -> int:
        """Return a member, leaf or reduction that does not change along the axis."""
        if key not in self._rows:
            self._rows[key] = self._row_value(key)
        return self._rows[key]

    def _row_value(self, key: Key) -> int:
        region, t = self._region, self._tiles
        operands = region.operands.get(key)
        if operands is None:
            number = _number(region.graph[key.node])
            return t.number(*number) if number is not None else self._array(key, own_first=False)
        if region.graph[key.node].op == "iota":
            return t.iota(key, None)
        shapes = [_without_axis(t.shape(o)) for o in operands]
        return t.elementwise(key, [self._row_member(o) for o in operands], shapes, _without_axis(t.shape(key)))


def accumulated(dtype: str) -> str:
    """Return the type in which values of one are summed up."""
    return "f32" if dtype in ("bf16", "f16") else dtype


def _without_axis(shape: Shape) -> Shape:
    return shape[0], False, shape[2]


def _number(node: Node) -> tuple[str, np.generic] | None:
    """Return the type and value of a constant that is one number."""
    if node.literal is None or node.literal.size != 1 or node.tensor.dims:
        return None
    return node.tensor.dtype, node.literal.reshape(())[()]


def _contracting(node: Node, left: int, right: int) -> Mapping[str, object]:
    """Return the attributes of a product of tiles, row by row, over these dimensions."""
    kept = {k: v for k, v in node.attributes.items() if not k.endswith("_dims")}
    batch = {"lhs_batch_dims": (0,), "rhs_batch_dims": (0,)}
    return freeze({**kept, **batch, "lhs_contracting_dims": (left,), "rhs_contracting_dims": (right,)})
