"""Streams: arrays over two axes that nothing but reductions over one of them reads, like the scores of attention.

A stream is found from a product that contracts the axis. Its members are computed tile by tile and never written; what
they are made of, the leaves, is small: each leaf lacks one of the two axes, or is given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from jax_stitch.analysis.binding import Binding, Factor, to_operand, to_result
from jax_stitch.graph.combiners import combines_by
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE

MOVES = frozenset({"broadcast", "reshape", "transpose"})
"""Operations that only move elements, and that a tile does not see: it has the axes of what they read."""

REDUCING = frozenset({"add", "maximum", "minimum"})
"""Operations by which the reductions of a stream combine."""

FLOATS = frozenset({"f64", "f32", "bf16", "f16"})
"""Element types of its products and reductions."""

MOST_MEMBERS = 500
"""A larger stream would be a kernel that takes long to compile."""


class Key(Struct, frozen=True):
    """A node under a binding: how its dimensions are made of the axes of the stream. Small arrays of indices occur
    under several.
    """

    node: int
    binding: Binding


class Stream(Struct, frozen=True):
    """``start`` is the product that contracts the ``axis``, from which the stream was found; ``axis`` is what the
    ``reductions`` run over: a factor of the bindings. ``members`` are ascending; those without
    the axis (``rows``) are made of results of the reductions. ``operands`` are those of members and reductions, each
    under its own binding; what is no member is a leaf.
    """

    graph: Graph
    start: int
    axis: Factor
    members: tuple[Key, ...]
    rows: frozenset[Key]
    reductions: tuple[Key, ...]
    operands: Mapping[Key, tuple[Key, ...]]

    def has_axis(self, key: Key) -> bool:
        """Return whether a value has the axis that the reductions run over."""
        return has(key.binding, self.axis)

    @property
    def is_closed(self) -> bool:
        """Return whether nothing else reads what products of the stream make."""
        graph, inside = self.graph, {key.node for key in (*self.members, *self.reductions)}
        made = _of_products(graph)
        here = [key.node for key in self.members if key not in self.rows and key.node in made]
        return not any(i in graph.result_set or not inside.issuperset(graph.users[i]) for i in here)

    def only(self, reductions: Collection[Key]) -> Stream:
        """Return the stream of some of its reductions; others are leaves."""
        found, waiting = dict[Key, tuple[Key, ...]](), list(reductions)
        while waiting:
            key = waiting.pop()
            if key in found or key not in self.operands or (key in self.reductions and key not in reductions):
                continue
            found[key] = self.operands[key]
            waiting += found[key]
        return Stream(
            *(self.graph, self.start, self.axis, tuple(m for m in self.members if m in found)),
            frozenset(r for r in self.rows if r in found),
            tuple(r for r in self.reductions if r in reductions),
            MappingProxyType(found),
        )

    def leaves(self) -> tuple[Key, ...]:
        """Return what is read and not computed, once each."""
        made = {*self.members, *self.reductions}
        return tuple(dict.fromkeys(o for operands in self.operands.values() for o in operands if o not in made))


def has(binding: Binding, axis: Factor) -> bool:
    """Return whether a dimension of a value is, or holds, an axis."""
    return any(f == axis for dim in binding for f in dim)


def streams(graph: Graph, among: Collection[int] | None = None) -> Iterator[Stream]:
    """Yield the streams of a graph, from each product (of some alone: ``among``) that contracts one axis of what other
    products make.
    """
    indices, made = _index_like(graph), _of_products(graph)
    for node in graph.nodes:
        if node.op != "dot" or (among is not None and node.id not in among):
            continue
        for side in (0, 1):
            if node.operands[side] not in made:
                continue
            found = _Search(graph, indices, made).stream(node, side)
            if found is not None:
                yield found


class _No(Exception):
    """Raised where there is no stream."""


class _Search:
    def __init__(self, graph: Graph, indices: Collection[int], of_products: Collection[int]):
        self._graph, self._indices, self._of_products = graph, indices, of_products
        self._axis, self._beside = Factor(1), frozenset[Factor]()
        self._members: dict[Key, tuple[Key, ...]] = {}
        self._reductions: dict[Key, tuple[Key, ...]] = {}

    def stream(self, dot: Node, side: int) -> Stream | None:
        """Return the stream whose member is operand ``side`` of a product; None where there is none."""
        source = self._graph[dot.operands[side]]
        contracted = dot.attributes[("lhs_contracting_dims", "rhs_contracting_dims")[side]]
        if len(contracted) != 1 or source.op == "parameter" or min(source.tensor.dims, default=1) < 2:
            return None
        if 2 * source.tensor.size < dot.tensor.size + self._graph[dot.operands[1 - side]].tensor.size:
            return None  # Its tiles are smaller than what is read and written for them.
        strides, stride = list[int](), 1
        for size in reversed(source.tensor.dims):
            strides.insert(0, stride)
            stride *= size
        binding = tuple((Factor(n, s),) for n, s in zip(source.tensor.dims, strides, strict=True))
        self._axis = binding[contracted[0]][0]
        batch = dot.attributes.get(("lhs_batch_dims", "rhs_batch_dims")[side], ())
        self._beside = frozenset(f for d, (f,) in enumerate(binding) if d not in (*batch, *contracted))
        start = Key(source.id, binding)
        if not self._is_member(start):
            return None
        try:
            self._fill(start)
            return self._stream(dot.id)
        except _No:
            return None

    def _fill(self, start: Key) -> None:
        """Find the members with the axis, up to leaves and down to reductions."""
        waiting = [start]
        while waiting:
            key = waiting.pop()
            if key in self._members:
                continue
            if len(self._members) > MOST_MEMBERS:
                raise _No
            self._members[key] = operands = tuple(self._operands(key))
            waiting += [o for o in operands if self._is_member(o)]
            if key.node not in self._of_products:
                continue  # Whoever else reads it may compute it again: a mask, a broadcast.
            for user in self._graph.users[key.node]:
                waiting += self._user(key, self._graph[user])

    def _user(self, key: Key, user: Node) -> Iterator[Key]:
        """Yield a user if it is a member; take note of it if it is a reduction."""
        number = user.operands.index(key.node)
        if user.op == "reduce" and self._is_reduction(key, user):
            kept = tuple(dim for d, dim in enumerate(key.binding) if d not in user.attributes["dimensions"])
            self._reductions[Key(user.id, kept)] = (key, Key(user.operands[1], ()))
            return
        if user.op == "dot" and self._contracts(key, user, number):
            self._reductions.update([self._product(key, user, number)])
            return
        binding = to_result(self._graph, user, number, key.binding) if user.op in (*ELEMENTWISE, *MOVES) else None
        if binding is not None and all(f.stride is not None for dim in binding for f in dim):
            made = Key(user.id, binding)
            if self._is_member(made):
                yield made

    def _is_reduction(self, key: Key, user: Node) -> bool:
        reduced = user.attributes["dimensions"]
        if not isinstance(user.type, TensorType) or user.tensor.dtype not in FLOATS:
            return False
        plain = len(user.operands) == 2 and combines_by(user.graphs["to_apply"], 0) in REDUCING
        return plain and len(reduced) == 1 and key.binding[reduced[0]] == (self._axis,)

    def _contracts(self, key: Key, dot: Node, number: int) -> bool:
        contracted = dot.attributes[("lhs_contracting_dims", "rhs_contracting_dims")[number]]
        is_over_axis = len(contracted) == 1 and key.binding[contracted[0]] == (self._axis,)
        return is_over_axis and dot.tensor.dtype in FLOATS

    def _product(self, key: Key, dot: Node, number: int) -> tuple[Key, tuple[Key, ...]]:
        """Return a product over the axis, with its operands."""
        binding = to_result(self._graph, dot, number, key.binding)
        assert binding is not None
        bound = to_operand(self._graph, dot, 1 - number, binding)
        assert bound is not None
        (at,) = dot.attributes[("lhs_contracting_dims", "rhs_contracting_dims")[1 - number]]
        other = Key(dot.operands[1 - number], (*bound[:at], (self._axis,), *bound[at + 1 :]))
        other = self._read(other)
        return Key(dot.id, binding), ((key, other) if number == 0 else (other, key))

    def _read(self, key: Key) -> Key:
        """Return what a value that is no member is read from: what others merely move lies in memory as it is."""
        node = self._graph[key.node]
        while node.op in MOVES and not self._is_member(key):
            binding = to_operand(self._graph, node, 0, key.binding)
            if binding is None or not self._is_whole(binding):
                break
            key = Key(node.operands[0], binding)
            node = self._graph[key.node]
        return key

    def _operands(self, key: Key) -> Iterator[Key]:
        """Yield the operands of a member, under their own bindings; those that are the same everywhere have none."""
        node = self._graph[key.node]
        for k, o in enumerate(node.operands):
            operand = self._graph[o]
            if not isinstance(operand.type, TensorType):
                raise _No
            binding = to_operand(self._graph, node, k, key.binding) if operand.tensor.dims else ()
            if binding is None:
                raise _No
            yield self._read(Key(o, binding))

    def _is_member(self, key: Key) -> bool:
        """Return whether a value is computed tile by tile: it has the axis and one of those beside it, which the
        product's other operand does not have, and no dimensions of its own; or tells indices.
        """
        node = self._graph[key.node]
        if not self._is_whole(key.binding):
            raise _No
        rows = [f for dim in key.binding for f in dim if f.stride is not None]
        if node.id in self._indices:
            return bool(rows) and node.op != "constant"
        if self._axis not in rows or not any(_overlaps(f, b) for f in rows for b in self._beside):
            return False
        if any(f.stride is None for dim in key.binding for f in dim):
            return False  # A factor of a product, computed before it.
        if node.op == "dot":
            return node.tensor.dtype in FLOATS and self._is_between(node, key)
        return node.op in ELEMENTWISE or node.op in MOVES

    def _is_whole(self, binding: Binding) -> bool:
        """Return whether no dimension is a part of the axis, or the axis with more."""
        return all(_is_apart(f, self._axis) for dim in binding for f in dim)

    def _is_between(self, dot: Node, key: Key) -> bool:
        """Return whether a product contracts one dimension, and one of its operands alone has the axis."""
        bound = [to_operand(self._graph, dot, k, key.binding) for k in (0, 1)]
        one = sum(b is not None and has(b, self._axis) for b in bound) == 1
        return one and len(dot.attributes["lhs_contracting_dims"]) == 1

    def _stream(self, start: int) -> Stream:
        graph, row_ids = self._graph, self._row_ids()
        members, waiting, rows = dict(self._members), list[Key](), set[Key]()
        for operands in (*self._members.values(), *self._reductions.values()):
            waiting += [o for o in operands if o.node in row_ids and o not in members]
        while waiting:
            key = waiting.pop()
            if key in members or key in self._reductions:
                continue
            members[key] = operands = tuple(self._operands(key))
            rows.add(key)
            waiting += [o for o in operands if o.node in row_ids]
        operands_of = {**members, **self._reductions}
        ordered = tuple(sorted(members, key=lambda k: k.node))
        reductions = tuple(sorted(self._reductions, key=lambda k: k.node))
        return Stream(graph, start, self._axis, ordered, frozenset(rows), reductions, MappingProxyType(operands_of))

    def _row_ids(self) -> set[int]:
        """Return the reductions and what is made of their results, element by element."""
        ids = {r.node for r in self._reductions}
        members = {key.node for key in self._members}
        for n in self._graph.nodes:
            if (n.op in ELEMENTWISE or n.op in MOVES) and n.id not in members and not ids.isdisjoint(n.operands):
                ids.add(n.id)
        return ids


def _overlaps(factor: Factor, other: Factor) -> bool:
    """Return whether two factors have indices in common."""
    assert factor.stride is not None and other.stride is not None
    return factor.stride < other.stride * other.size and other.stride < factor.stride * factor.size


def _is_apart(factor: Factor, axis: Factor) -> bool:
    """Return whether a factor is the axis, or has nothing of it."""
    return factor.stride is None or factor == axis or not _overlaps(factor, axis)


def _index_like(graph: Graph) -> set[int]:
    """Return the nodes that are computed of indices and single constants alone."""
    found: set[int] = set()
    for n in graph.nodes:
        single = n.literal is not None and n.literal.size == 1
        made = n.op in ELEMENTWISE or n.op in MOVES
        if n.op == "iota" or single or (made and all(o in found for o in n.operands)):
            found.add(n.id)
    return found


def _of_products(graph: Graph) -> set[int]:
    """Return the products, and what is computed from them element by element."""
    found: set[int] = set()
    for n in graph.nodes:
        made = n.op in ELEMENTWISE or n.op in MOVES
        if n.op == "dot" or (made and not found.isdisjoint(n.operands)):
            found.add(n.id)
    return found


def depending(graph: Graph, roots: set[int]) -> set[int]:
    """Return all nodes that are computed from some, with themselves."""
    found = set(roots)
    for n in graph.nodes:
        if not found.isdisjoint(n.operands):
            found.add(n.id)
    return found
