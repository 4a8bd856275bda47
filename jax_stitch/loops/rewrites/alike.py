"""Numbers that are computed alike: which ones could be one array, and in which order.

A program in plain Python over a list of states (compartments of a neuron, joints of a robot, coupled filters) reaches
XLA as hundreds of scalars. Those that the same operations make, each from its own numbers, are lanes of one array here:
a vector's work in place of a scalar's, and a text that does not grow with the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct

from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE

LEAST = 12
"""Lanes of an array, below which numbers stay apart, in registers."""

MOST_PIECES = 4
"""Pieces (neighbouring lanes, or one number) that what reads several arrays may put together."""


class Leaf(Struct, frozen=True):
    """A number that a graph is given, or an element that it reads of an array that it is given: ``kind`` is equal where
    several may be lanes of one array, ``order`` where they stand by themselves.
    """

    kind: tuple[object, ...]
    order: int
    array: int
    """The parameter that is given."""


class Kind(Enum):
    """Where a vector comes from."""

    GIVEN = "parameters, or what there is before"
    MADE = "operations"
    ARRAY = "parameters that are read element by element"
    READ = "one element of each of these"


class Vector(Struct, frozen=True):
    """Values that become one array: ``members`` are their nodes by lane. What is read is that of the vector ``array``
    at ``index``.
    """

    kind: Kind
    members: tuple[int, ...] = ()
    array: int = -1
    index: tuple[int, ...] = ()


VectorLane = tuple[int, int]
"""A vector's number, and the lane."""


class Piece(Struct, frozen=True):
    """Neighbouring lanes of a vector, from ``start`` on up or (``by`` is -1) down; of a number that is in none
    (``None``) ``start`` is its node, and how often it is repeated is ``count``.
    """

    vector: int | None
    start: int
    count: int = 1
    by: int = 1

    def longer(self, vector: int | None, lane: int) -> Piece | None:
        """Return the piece with one more at its end, if that is one."""
        step = 0 if vector is None else lane - self.start if self.count == 1 else self.by
        if vector != self.vector or lane != self.start + step * self.count or step not in (0, 1, -1):
            return None
        return Piece(vector, self.start, self.count + 1, step or 1) if (step == 0) == (vector is None) else None


@dataclass
class Alike:
    """What is joined in a graph."""

    vectors: list[Vector] = field(default_factory=list)
    lanes: dict[int, VectorLane] = field(default_factory=dict)
    arrays: dict[int, VectorLane] = field(default_factory=dict)
    """Parameters that are read element by element."""

    def add(self, vector: Vector) -> int:
        """Add a vector, or finds the one that reads the same."""
        if vector.kind is Kind.READ and vector in self.vectors:
            return self.vectors.index(vector)
        number = len(self.vectors)
        self.vectors.append(vector)
        lanes = self.arrays if vector.kind is Kind.ARRAY else self.lanes
        lanes |= {i: (number, lane) for lane, i in enumerate(vector.members)}
        return number

    def pieces(self, wanted: Sequence[int]) -> list[Piece]:
        """Return some numbers in a row as pieces of what there is."""
        pieces: list[Piece] = []
        for i in wanted:
            vector, lane = self.lanes.get(i, (None, i))
            longer = pieces[-1].longer(vector, lane) if pieces else None
            if longer is not None:
                pieces[-1] = longer
            else:
                pieces.append(Piece(vector, lane))
        return pieces


def alike(graph: Graph, leaves: Mapping[int, Leaf], given: Sequence[Sequence[int]]) -> Alike:
    """Return what can be joined of a graph's scalars. ``given`` are the members of vectors that there are already."""
    finder = _Finder(graph, leaves)
    for members in given:
        finder.alike.add(Vector(Kind.GIVEN, tuple(members)))
    colours = _colours(graph, leaves, finder.alike.lanes)
    classes: dict[int, list[int]] = {}
    for n in graph.nodes:
        if is_scalar(n) and n.op in ELEMENTWISE and n.operands:
            classes.setdefault(colours[n.id], []).append(n.id)
    depth = depths(graph)
    for members in sorted(classes.values(), key=lambda ids: (depth[ids[0]], ids[0])):
        if len(members) >= LEAST:
            finder.join(members)
    return finder.alike


def is_scalar(node: Node) -> bool:
    """Return whether a node is one number."""
    return isinstance(node.type, TensorType) and not node.type.dims


def depths(graph: Graph) -> list[int]:
    """Return how many nodes stand one after the other before each. What is computed alike has the same."""
    depth: list[int] = []
    for n in graph.nodes:
        depth.append(1 + max((depth[o] for o in n.operands), default=-1))
    return depth


def _colours(graph: Graph, leaves: Mapping[int, Leaf], lanes: Mapping[int, VectorLane]) -> list[int]:
    """Return a number for each node: equal where the same operations make it of leaves of the same kinds."""
    known: dict[tuple[object, ...], int] = {}
    colours: list[int] = []
    for n in graph.nodes:
        leaf = leaves.get(n.id)
        key: tuple[object, ...]
        if n.id in lanes:
            key = "vector", lanes[n.id][0]
        elif leaf is not None:
            key = "leaf", leaf.kind
        elif n.op in ELEMENTWISE and is_scalar(n):
            attributes = repr(sorted(n.attributes.items())) if n.attributes else ""
            key = n.op, n.type, attributes, tuple(colours[o] for o in n.operands)
        elif n.op == "constant" and n.literal is not None and n.literal.size == 1:
            key = n.op, n.type, n.literal.tobytes()
        else:
            key = "single", n.id
        colours.append(known.setdefault(key, len(known)))
    return colours


class _Finder:
    def __init__(self, graph: Graph, leaves: Mapping[int, Leaf]):
        self._graph, self._leaves = graph, leaves
        self.alike = Alike()

    def join(self, members: Sequence[int]) -> None:
        """Make a vector of operations, if what each of their operands is can be put together of few pieces."""
        ordered = self._ordered(members)
        before = dict(self.alike.lanes), dict(self.alike.arrays), len(self.alike.vectors)
        for wanted in self._operands(ordered):
            if len(set(wanted)) > 1:
                self._join_leaves(wanted)
                if len(self.alike.pieces(wanted)) > MOST_PIECES:
                    self.alike.lanes, self.alike.arrays = before[0], before[1]
                    del self.alike.vectors[before[2] :]
                    return
        self.alike.add(Vector(Kind.MADE, tuple(ordered)))

    def _operands(self, members: Sequence[int]) -> Iterator[list[int]]:
        for k in range(len(self._graph[members[0]].operands)):
            yield [self._graph[i].operands[k] for i in members]

    def _ordered(self, members: Sequence[int]) -> list[int]:
        """Return the operations in the order of one of their operands, which each has its own of."""
        best: tuple[int, list[tuple[int, ...]]] | None = None
        for wanted in self._operands(members):
            if len(set(wanted)) < len(members):
                continue
            keys = [self._order(i) for i in wanted]
            rank = max(key[0] for key in keys)
            if best is None or rank < best[0]:
                best = rank, keys
        if best is None:
            return list(members)
        return [i for _, i in sorted(zip(best[1], members, strict=True))]

    def _order(self, i: int) -> tuple[int, ...]:
        """Return the sort key of a vector: lanes that there are first, then what is carried, then what is read."""
        if i in self.alike.lanes:
            return (0, *self.alike.lanes[i])
        leaf = self._leaves.get(i)
        if leaf is None:
            return 3, i
        return 2 if leaf.kind[0] == "carried" else 1, leaf.order

    def _join_leaves(self, wanted: Sequence[int]) -> None:
        """Make a vector of those leaves among some numbers that are in none."""
        kinds: dict[tuple[object, ...], dict[int, Leaf]] = {}
        for i in wanted:
            leaf = self._leaves.get(i) if i not in self.alike.lanes else None
            if leaf is not None:
                kinds.setdefault(leaf.kind, {})[i] = leaf
        for kind, leaves in kinds.items():
            ids = sorted(leaves, key=lambda i: leaves[i].order) if kind[0] == "carried" else list(leaves)
            if kind[0] == "read":
                self._join_read(ids, leaves)
            elif len(ids) >= LEAST:
                self.alike.add(Vector(Kind.GIVEN, tuple(ids)))

    def _join_read(self, ids: Sequence[int], leaves: Mapping[int, Leaf]) -> None:
        """Make one array of those that some elements are read from, and a vector of what is read there."""
        new = [i for i in ids if leaves[i].array not in self.alike.arrays]
        if len(new) >= LEAST and len({leaves[i].array for i in new}) == len(new):
            self.alike.add(Vector(Kind.ARRAY, tuple(leaves[i].array for i in new)))
        for i in ids:
            if leaves[i].array in self.alike.arrays:
                number, lane = self.alike.arrays[leaves[i].array]
                index = self._graph[self._graph[i].operands[0]].operands[1:]
                self.alike.lanes[i] = self.alike.add(Vector(Kind.READ, (), number, index)), lane
