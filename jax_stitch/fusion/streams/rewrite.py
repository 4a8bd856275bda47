"""A stream as a loop over tiles of its axis, whose sums are corrected as the maxima that they are scaled by grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np

from jax_stitch.analysis.patterns.nest import LIKELY_SHARE
from jax_stitch.devices import Device
from jax_stitch.fusion.streams.body import TileBody, number_of, packs
from jax_stitch.fusion.streams.masks import share_of_tiles
from jax_stitch.fusion.streams.separation import Form, Kind, Row, forms
from jax_stitch.fusion.streams.skipped import changes
from jax_stitch.fusion.streams.stream import Key, Stream, depending
from jax_stitch.fusion.streams.tiles import FIRST, PER_LANE, Shape, Tiles
from jax_stitch.fusion.streams.tiling import Tiling
from jax_stitch.graph.builder import Builder, moved
from jax_stitch.graph.combiners import combines_by
from jax_stitch.graph.model import STREAMED, Graph, GraphLayouts, Node, TensorType, TupleType
from jax_stitch.util.values import replace


def streamed(stream: Stream, tiling: Tiling, device: Device) -> Graph:
    """Return the graph with a stream, all of whose reductions run in one sweep, as a loop over tiles."""
    return _Rewrite(stream, tiling, forms(stream), device).graph()


class _Rewrite:
    """The rewriting of one stream."""

    def __init__(self, stream: Stream, tiling: Tiling, known: Mapping[Key, Form], device: Device):
        self._stream, self._tiling, self._known, self._device = stream, tiling, known, device
        graph = stream.graph
        self._builder = Builder(graph.name)
        last = graph[stream.reductions[-1].node]
        self._origin = replace(last, kernel="")
        self._tiles = Tiles(self._builder, stream, tiling, self._origin)
        self._ids: dict[int, int] = {}
        self._rows: dict[Key, int] = {}

    def graph(self) -> Graph:
        """Return the graph: all that the stream reads, the loop, and what reads its results."""
        graph, ids = self._stream.graph, self._ids
        sums = {key.node: key for key in self._stream.reductions}
        after = depending(graph, set(sums))
        ids.update(
            {p: self._builder.parameter(graph[p].type, graph[p].name, graph[p].source) for p in graph.parameters}
        )
        self._copy(n for n in graph.nodes if n.id not in after and n.id not in ids)
        body, running = self._loop()
        for n in graph.nodes:
            if n.id in sums:
                key = sums[n.id]
                with self._tiles.named_as(n):
                    self._rows[key] = total = self._total(key, n, body, running)
                    ids[n.id] = self._tiles.in_memory(total, key, n)
            elif n.id in after:
                self._copy((n,))
        return self._builder.finish([ids[r] for r in graph.results], graph.single, graph.layouts)

    def _copy(self, nodes: Iterator[Node] | tuple[Node, ...]) -> None:
        for n in nodes:
            self._ids[n.id] = self._builder.add(moved(n, -1, tuple(self._ids[o] for o in n.operands)))

    def _loop(self) -> tuple[TileBody, list[int]]:
        """Add the loop; return its body and its results, the running values."""
        arrays = {array: self._array(*array) for array in self._read()}
        types = {array: self._tiles.type(i) for array, i in arrays.items()}
        body = TileBody(self._stream, self._tiling, self._known, self._origin, types, self._device)
        truth = changes(body)
        graph = body.graph(truth)
        first = {r.before: self._tiles.number(body.tiles.type(r.before).dtype, FIRST[r.by]) for r in body.running}
        spread = {p: self._tiles.spread(i, body.tiles.type(p).dims, ()) for p, i in first.items()}
        given = [self._tiles.number("s32", 0), *arrays.values()]
        operands = given + [spread[p] for p in body.builder.parameters[len(given) :]]
        carried = TupleType(tuple(graph[p].type for p in graph.parameters))
        attributes: dict[str, object] = {"trip_count": self._tiling.steps, STREAMED: True}
        if truth is not None:
            attributes[LIKELY_SHARE] = share_of_tiles(self._stream, self._tiling, self._known)
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
        stream, found = self._stream, dict[tuple[Key, bool], None]()
        leaves = set(stream.leaves())
        for key, operands in stream.operands.items():
            if key in stream.rows:
                continue
            is_product = stream.graph[key.node].op == "dot" and key not in stream.reductions
            reads = operands[:1] if stream.graph[key.node].op == "reduce" else operands
            for o in reads:
                if o in leaves and number_of(stream.graph[o.node]) is None:
                    found[o, is_product and not stream.has_axis(o) and packs(self._device)] = None
        return list(found)

    def _array(self, key: Key, own_first: bool) -> int:
        """Return what the loop is given of a leaf: what does not change from tile to tile is arranged before it."""
        array = self._tiles.divided(self._ids[key.node], key)
        if self._stream.has_axis(key) or not packs(self._device):
            return array
        return self._tiles.arranged(array, key, own_first=own_first)

    # -- after the loop

    def _total(self, key: Key, node: Node, body: TileBody, running: Sequence[int]) -> int:
        """Return the tiles of a reduction's result."""
        t, made, operands = self._tiles, body.sums[key], self._stream.operands[key]
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
            number = number_of(self._stream.graph[operands[1].node])
            if number is None or number[1] != FIRST[by]:
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
        stream, t = self._stream, self._tiles
        operands = stream.operands.get(key)
        if operands is None:
            number = number_of(stream.graph[key.node])
            if number is not None:
                return t.number(*number)
            return t.arranged(t.divided(self._ids[key.node], key), key, own_first=False)
        if stream.graph[key.node].op == "iota":
            return t.iota(key, None)
        shapes = [_without_axis(t.shape(o)) for o in operands]
        return t.elementwise(key, [self._row_member(o) for o in operands], shapes, _without_axis(t.shape(key)))


def _without_axis(shape: Shape) -> Shape:
    return shape[0], False, shape[2]
