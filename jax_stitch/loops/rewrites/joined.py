"""Graphs in which numbers that are computed alike are one array, around loops that carry many of them.

Each loop over many scalars carries some arrays instead, its body computes them as vectors, and what it stacks step by
step is one array with the lanes last. Around it the same is done to what makes the scalars and what reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jax_stitch.graph.builder import Builder, moved
from jax_stitch.graph.model import Graph, Node, TensorType, TupleType
from jax_stitch.graph.rewrites.simplify import simplify_movement
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.leaves import (
    carried_groups,
    is_followed,
    leaves_of,
    stacked_number,
    stacks_of,
    with_plain_numbers,
)
from jax_stitch.loops.rewrites.alike import LEAST, Alike, Kind, Leaf, alike, depths, is_scalar

LEAST_SHARE = 0.75
"""Of the operations of a body that have to be part of vectors."""


def with_joined_numbers(graph: Graph) -> Graph:
    """Return the graph with the scalars of its loops joined, where most of a loop's operations become vectors'."""
    loops = {n.id: made for n in graph.nodes if n.op == "while" and (made := _joined(graph, n)) is not None}
    return _around(graph, loops) if loops else graph


@dataclass(frozen=True, eq=False)
class _Loop:
    """What is joined of a loop: what it carries by number, by itself (``single``) or in groups, of values and of what
    no iteration changes (``carried``) and of what is written step by step.
    """

    node: Node
    body: Graph
    alike: Alike
    single: tuple[int, ...]
    carried: tuple[tuple[int, ...], ...]
    stacked: tuple[tuple[int, ...], ...]

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        return (*self.carried, *self.stacked)

    def type_of(self, group: Sequence[int]) -> TensorType:
        """Return the type of a group's array: the lanes are last."""
        one = self.body[self.body.parameters[group[0]]].tensor
        return TensorType(one.dtype, (*one.dims, len(group)))

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(self.type_of(group) for group in self.groups)


def _joined(graph: Graph, node: Node) -> _Loop | None:
    """Return what can be joined of a loop, if that is most of it."""
    body, condition = node.graphs["body"], node.graphs["condition"]
    if not isinstance(node.type, TupleType) or node.id in graph.result_set or len(body.parameters) < LEAST:
        return None
    if node.attributes.get("trip_count") is None:
        return None  # Rows that end apart are threads', which keep what they carry in registers.
    if any(graph[u].op != "get-tuple-element" for u in graph.users[node.id]):
        return None
    tested = {k for k, p in enumerate(condition.parameters) if condition.users[p] or p in condition.results}
    body = with_plain_numbers(body)
    leaves = leaves_of(body, tested, {graph[u].attributes["index"] for u in graph.users[node.id]})
    while True:
        joined = alike(body, leaves, ())
        bad = [v for v in joined.vectors if v.kind is Kind.GIVEN and not is_followed(body, v, joined)]
        if not bad:
            break
        gone = {i for v in bad for i in v.members}
        leaves = {i: leaf for i, leaf in leaves.items() if i not in gone}
    made = sum(len(v.members) for v in joined.vectors if v.kind is Kind.MADE)
    if not made or made < LEAST_SHARE * sum(is_scalar(n) and n.op in ELEMENTWISE for n in body.nodes):
        return None
    carried, stacked = carried_groups(body, joined), tuple(stacks_of(body, joined, tested))
    inside = {k for group in (*carried, *stacked) for k in group}
    single = tuple(k for k in range(len(body.parameters)) if k not in inside)
    return _Loop(node, body, joined, single, carried, stacked)


class _Writer:
    """A graph rewritten with its vectors in place of what they join."""

    def __init__(self, graph: Graph, alike: Alike):
        self.graph, self.alike = graph, alike
        self.builder = Builder(graph.name, (simplify_movement,))
        self.ids: dict[int, int] = {}
        self.vectors: dict[int, int] = {}

    def units(self, skipped: Collection[int]) -> list[tuple[int | None, Node]]:
        """Return what there is to write, in order: vectors of operations, by number, and nodes that are in none."""
        depth, alike = depths(self.graph), self.alike
        units: list[tuple[int | None, Node]] = [
            (v, self.graph[vector.members[0]]) for v, vector in enumerate(alike.vectors) if vector.kind is Kind.MADE
        ]
        gone = {*self.ids, *alike.lanes, *skipped}
        units += [(None, n) for n in self.graph.nodes if n.id not in gone]
        return sorted(units, key=lambda unit: (depth[unit[1].id], unit[1].id))

    def write(self, unit: tuple[int | None, Node]) -> None:
        """Write a vector or a node."""
        number, node = unit
        if number is None:
            operands = tuple(self.value(o) for o in node.operands)
            self.ids[node.id] = self.builder.add(moved(node, -1, operands))
            return
        members = [self.graph[i] for i in self.alike.vectors[number].members]
        operands = tuple(self.joined([m.operands[k] for m in members]) for k in range(len(node.operands)))
        type_ = TensorType(node.tensor.dtype, (len(members),))
        self.vectors[number] = self.builder.derive(node, node.op, type_, operands, node.attributes)

    def value(self, i: int) -> int:
        """Return a node by itself: of a vector its lane."""
        if i not in self.ids:
            number, lane = self.alike.lanes[i]
            whole, type_ = self.vector(number), self.graph[i].tensor
            lanes = self._lanes(whole, lane, 1)
            self.ids[i] = self.builder.derive(self.graph[i], "reshape", type_, [lanes])
        return self.ids[i]

    def vector(self, number: int) -> int:
        """Return a vector; of what is given it is put together, or read."""
        if number not in self.vectors:
            vector = self.alike.vectors[number]
            if vector.kind is Kind.READ:
                self.vectors[number] = self._read(self.vector(vector.array), [self.value(i) for i in vector.index])
            else:
                self.vectors[number] = self._concatenated([self._lane(i, 1) for i in vector.members])
        return self.vectors[number]

    def joined(self, wanted: Sequence[int]) -> int:
        """Return an array of some numbers, or of some arrays: lanes are last."""
        arrays = []
        for piece in self.alike.pieces(wanted):
            if piece.vector is None:
                arrays.append(self._lane(piece.start, piece.count))
            elif piece.by == 1:
                arrays.append(self._lanes(self.vector(piece.vector), piece.start, piece.count))
            else:
                upwards = self._lanes(self.vector(piece.vector), piece.start - piece.count + 1, piece.count)
                arrays.append(self._reversed(upwards))
        return self._concatenated(arrays)

    def _reversed(self, vector: int) -> int:
        node = self.builder[vector]
        last = {"dimensions": (len(node.tensor.dims) - 1,)}
        return self.builder.derive(node, "reverse", node.tensor, [vector], last)

    def _lane(self, i: int, count: int) -> int:
        """Return a value as some lanes, all the same."""
        one = self.builder[self.value(i)]
        type_ = TensorType(one.tensor.dtype, (*one.tensor.dims, count))
        if count == 1:
            return self.builder.derive(one, "reshape", type_, [one.id])
        dimensions = {"dimensions": tuple(range(len(one.tensor.dims)))}
        return self.builder.derive(one, "broadcast", type_, [one.id], dimensions)

    def _lanes(self, vector: int, start: int, count: int) -> int:
        node = self.builder[vector]
        *dims, lanes = node.tensor.dims
        if count == lanes:
            return vector
        ranges = (*((0, n, 1) for n in dims), (start, start + count, 1))
        return self.builder.derive(
            node, "slice", TensorType(node.tensor.dtype, (*dims, count)), [vector], {"slice": ranges}
        )

    def _concatenated(self, pieces: Sequence[int]) -> int:
        nodes = [self.builder[p] for p in pieces]
        *dims, _ = nodes[0].tensor.dims
        lanes = sum(n.tensor.dims[-1] for n in nodes)
        type_ = TensorType(nodes[0].tensor.dtype, (*dims, lanes))
        return self.builder.derive(nodes[0], "concatenate", type_, pieces, {"dimensions": (len(dims),)})

    def _read(self, array: int, index: Sequence[int]) -> int:
        """Return the lanes of an array's element."""
        node = self.builder[array]
        lanes = node.tensor.dims[-1]
        zero = self.zero(self.builder[index[0]])
        one = TensorType(node.tensor.dtype, (1, lanes))
        sizes = {"dynamic_slice_sizes": (1, lanes)}
        read = self.builder.derive(node, "dynamic-slice", one, [array, *index, zero], sizes)
        return self.builder.derive(node, "reshape", TensorType(node.tensor.dtype, (lanes,)), [read])

    def zero(self, like: Node) -> int:
        """Return an index of the same type."""
        name = {"s": "int", "u": "uint"}[like.tensor.dtype[0]] + like.tensor.dtype[1:]
        return self.builder.constant(like, like.tensor.dtype, np.zeros((), name))


def _written_body(loop: _Loop) -> Graph:
    body = loop.body
    writer = _Writer(body, loop.alike)
    builder = writer.builder
    for k in loop.single:
        p = body[body.parameters[k]]
        writer.ids[p.id] = builder.parameter(p.type, p.name, p.source)
    given = [
        builder.parameter(t, body[body.parameters[g[0]]].name) for g, t in zip(loop.groups, loop.types, strict=True)
    ]
    vectors = [v for v, vector in enumerate(loop.alike.vectors) if vector.kind in (Kind.GIVEN, Kind.ARRAY)]
    writer.vectors |= dict(zip(vectors, given, strict=False))
    stacked = {k for group in loop.stacked for k in group}
    skipped = {*body.parameters, *(body.results[k] for k in stacked)}
    skipped |= {u for array in loop.alike.arrays for u in body.users[array]}
    for unit in writer.units(skipped):
        writer.write(unit)
    results = [writer.value(body.results[k]) for k in loop.single]
    for group, parameter in zip(loop.carried, given, strict=False):
        same = all(body.results[k] == body.parameters[k] for k in group)
        results.append(parameter if same else writer.joined([body.results[k] for k in group]))
    for group, parameter in zip(loop.stacked, given[len(loop.carried) :], strict=True):
        results.append(_stacked(writer, group, parameter))
    return builder.finish(results, body.single, body.layouts)


def _stacked(writer: _Writer, group: Sequence[int], parameter: int) -> int:
    """Return the lanes that a step writes into an array."""
    body, builder = writer.graph, writer.builder
    update = body[body.results[group[0]]]
    lanes = writer.joined([i for k in group if (i := stacked_number(body, k)) is not None])
    row = TensorType(update.tensor.dtype, (1, len(group)))
    lanes = builder.derive(update, "reshape", row, [lanes])
    index = writer.value(update.operands[2])
    operands = [parameter, lanes, index, writer.zero(builder[index])]
    return builder.derive(update, update.op, builder[parameter].type, operands)


def _written_condition(loop: _Loop) -> Graph:
    """Return the condition, which reads nothing of what is joined."""
    old = loop.node.graphs["condition"]
    builder = Builder(old.name)
    ids = {old.parameters[k]: builder.parameter(old[old.parameters[k]].type) for k in loop.single}
    for t in loop.types:
        builder.parameter(t)
    for n in old.nodes:
        if n.op != "parameter":
            ids[n.id] = builder.add(moved(n, -1, tuple(ids[o] for o in n.operands)))
    return builder.finish([ids[r] for r in old.results], old.single, old.layouts)


def _around(graph: Graph, loops: Mapping[int, _Loop]) -> Graph:
    """Return the graph with its loops joined, and what stands around them."""
    given: list[tuple[int, ...]] = []
    owner: dict[int, int] = {}
    for i, loop in loops.items():
        results = {graph[u].attributes["index"]: u for u in graph.users[i]}
        owner[i] = len(given)
        # What nobody reads is a lane all the same.
        given += [tuple(results.get(k, -1 - k - len(graph) * i) for k in group) for group in loop.groups]
    leaves = {p: Leaf(("constant", graph[p].type), k, p) for k, p in enumerate(graph.parameters) if is_scalar(graph[p])}
    writer = _Writer(graph, alike(graph, leaves, given))
    builder = writer.builder
    for p in graph.parameters:
        writer.ids[p] = builder.parameter(graph[p].type, graph[p].name, graph[p].source)
    for unit in writer.units(()):
        node = unit[1]
        if unit[0] is None and node.id in loops:
            made = _written_loop(writer, loops[node.id])
            for n in range(len(loops[node.id].groups)):
                writer.vectors[owner[node.id] + n] = _element(builder, made, len(loops[node.id].single) + n)
            writer.ids[node.id] = made
        elif node.op == "get-tuple-element" and node.operands[0] in loops:
            number = loops[node.operands[0]].single.index(node.attributes["index"])
            writer.ids[node.id] = _element(builder, writer.ids[node.operands[0]], number)
        else:
            writer.write(unit)
    return builder.finish([writer.value(r) for r in graph.results], graph.single, graph.layouts)


def _element(builder: Builder, loop: int, number: int) -> int:
    node = builder[loop]
    assert isinstance(node.type, TupleType)
    return builder.derive(node, "get-tuple-element", node.type.elements[number], [loop], {"index": number})


def _written_loop(writer: _Writer, loop: _Loop) -> int:
    node = loop.node
    assert isinstance(node.type, TupleType)
    operands = [writer.value(node.operands[k]) for k in loop.single]
    operands += [writer.joined([node.operands[k] for k in group]) for group in loop.groups]
    type_ = TupleType((*(node.type.elements[k] for k in loop.single), *loop.types))
    graphs = {"body": _written_body(loop), "condition": _written_condition(loop)}
    return writer.builder.derive(node, node.op, type_, operands, node.attributes, graphs)
