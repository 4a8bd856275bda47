"""Complex values as pairs of real ones, so that kernels can hold them.

Each operation on complex values becomes operations on their real and imaginary parts. What has no such form (a Fourier
transform, a library's call) reads complex values that are put together, and its results are taken apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from hlo_parser.dtypes import COMPLEX_PARTS

from ..builder import Builder, moved
from ..combiners import combines_by
from ..model import Graph, GraphLayouts, Node, NodeType, TensorType, TupleType
from ..opcodes import DATA_MOVEMENT
from .complex_arithmetic import ARITHMETIC, Arithmetic, Pair

MOVED = (DATA_MOVEMENT - {"iota"}) | {"copy", "dynamic-update-slice", "gather"}
"""Operations that move elements: what they do to both parts is the same."""


def is_complex(type_: NodeType) -> bool:
    """Return whether values of a type are arrays of complex numbers."""
    return isinstance(type_, TensorType) and type_.dtype in COMPLEX_PARTS


def part_of(type_: TensorType) -> TensorType:
    """Return the type of the real parts of a complex array."""
    return TensorType(COMPLEX_PARTS[type_.dtype], type_.dims)


def has_complex(graph: Graph) -> bool:
    """Return whether a graph has complex values, or calls one that has."""
    return any(is_complex(n.type) or any(map(has_complex, n.graphs.values())) for n in graph.nodes)


def names_in_parts(graph: Graph) -> frozenset[str]:
    """Return the names of the nodes that ``with_parts`` takes apart."""
    return frozenset(n.name for n in graph.nodes if can_be_split(graph, n))


def with_parts(graph: Graph, whole: Collection[str] = ()) -> Graph:
    """Return the graph with its complex values in parts, but for parameters, results and what nodes make whose names
    are in ``whole``. What it calls, but loops, stays.
    """
    chosen = _chosen(graph, whole)
    return _Splitting(graph, chosen).finished(graph.layouts) if chosen else graph


def can_be_split(graph: Graph, node: Node) -> bool:
    """Return whether a node of complex values, or one that makes a real value of them, has a form on their parts."""
    if node.op == "while":
        is_read = all(graph[u].op == "get-tuple-element" for u in graph.users[node.id])
        is_apart = isinstance(node.type, TupleType) and is_read and node.id not in graph.result_set
        return is_apart and any(map(has_complex, node.graphs.values()))
    if node.op in ("parameter", "get-tuple-element"):
        return False
    of_complex = is_complex(node.type) or any(is_complex(graph[o].type) for o in node.operands)
    if not of_complex:
        return False
    if node.op in ("reduce", "reduce-window"):
        return len(node.operands) == 2 and combines_by(node.graphs["to_apply"], 0) == "add"
    return node.op in MOVED | ARITHMETIC.keys() or node.op in ("constant", "complex", "real", "imag", "dot", "convert")


class _Splitting:
    """A graph rewritten, with the parts of the complex values of ``chosen`` nodes. The parameters and results of these
    numbers are parts too.
    """

    def __init__(
        self, graph: Graph, chosen: Collection[int], parameters: Collection[int] = (), results: Collection[int] = ()
    ) -> None:
        self._graph, self._chosen, self._apart = graph, chosen, results
        self._builder = Builder(graph.name, (_known_part,))
        self._whole: dict[int, int] = {}
        self._parts: dict[int, Pair] = {}
        self._loops: dict[int, tuple[int, Sequence[int]]] = {}
        """The new loop in place of each that carries parts, and where each value that it carries begins there."""
        for number, i in enumerate(graph.parameters):
            node = graph[i]
            if number in parameters:
                real, imaginary = (self._builder.parameter(part_of(node.tensor), node.name, node.source) for _ in "ri")
                self._parts[i] = real, imaginary
            else:
                self._whole[i] = self._builder.parameter(node.type, node.name, node.source)

    def finished(self, layouts: GraphLayouts) -> Graph:
        """Return the rewritten graph."""
        for node in self._graph.nodes:
            if node.id not in self._whole and node.id not in self._parts:
                self._add(node)
        results = [part for number, i in enumerate(self._graph.results) for part in self._given(number, i)]
        return self._builder.finish(results, self._graph.single and len(results) == 1, layouts)

    def _given(self, result: int, number: int) -> tuple[int, ...]:
        """Return what stands for a result: its parts, or itself."""
        return self._pair(number, self._graph[number]) if result in self._apart else (self._value(number),)

    def _value(self, number: int) -> int:
        """Return an earlier value as it was."""
        if number not in self._whole:
            node = self._graph[number]
            self._whole[number] = self._builder.derive(node, "complex", node.type, self._parts[number])
        return self._whole[number]

    def _pair(self, number: int, reader: Node) -> Pair:
        """Return the parts of an earlier complex value, which ``reader`` takes apart if nothing else has."""
        if number not in self._parts:
            type_, whole = part_of(self._graph[number].tensor), self._whole[number]
            real, imaginary = (self._builder.derive(reader, part, type_, [whole]) for part in ("real", "imag"))
            self._parts[number] = real, imaginary
        return self._parts[number]

    def _add(self, node: Node) -> None:
        if node.op == "get-tuple-element" and node.operands[0] in self._loops:
            self._take(node)
        elif node.id not in self._chosen or self._moves_whole(node):
            self._whole[node.id] = self._builder.add(moved(node, -1, tuple(map(self._value, node.operands))))
        elif node.op == "while":
            self._loop(node)
        elif node.op in ("real", "imag"):
            self._whole[node.id] = self._pair(node.operands[0], node)[node.op == "imag"]
        elif is_complex(node.type):
            self._parts[node.id] = self._in_parts(node)
        else:
            self._whole[node.id] = self._real_of(node)

    def _moves_whole(self, node: Node) -> bool:
        """Return whether a node moves elements of what lies in memory, or writes some into a loop's stacked result: its
        readers take apart what they read, its update is put together as it is written.
        """
        if node.op not in MOVED:
            return False
        moved_from = node.operands[:1] if node.op == "dynamic-update-slice" else node.operands
        return all(o in self._whole for o in moved_from if is_complex(self._graph[o].type))

    def _take(self, node: Node) -> None:
        loop, first = self._loops[node.operands[0]]
        number = node.attributes["index"]
        at, is_apart = first[number], first[number + 1] - first[number] == 2
        type_ = part_of(node.tensor) if is_apart else node.type
        taken = self._builder.derive(node, "get-tuple-element", type_, [loop], {"index": at})
        if is_apart:
            other = self._builder.derive(node, "get-tuple-element", type_, [loop], {"index": at + 1})
            self._parts[node.id] = taken, other
        else:
            self._whole[node.id] = taken

    def _loop(self, node: Node) -> None:
        assert isinstance(node.type, TupleType)
        apart = _carried_apart(node.graphs["body"])
        first, elements, operands = [0], list[NodeType](), list[int]()
        for number, (type_, o) in enumerate(zip(node.type.elements, node.operands, strict=True)):
            if number in apart and isinstance(type_, TensorType):
                elements += [part_of(type_)] * 2
                operands += self._pair(o, self._graph[o])
            else:
                elements.append(type_)
                operands.append(self._value(o))
            first.append(len(elements))
        graphs = {
            name: _Splitting(called, _chosen(called), apart, apart if name == "body" else ()).finished(GraphLayouts())
            for name, called in node.graphs.items()
        }
        type_ = TupleType(tuple(elements))
        self._loops[node.id] = self._builder.derive(node, "while", type_, operands, node.attributes, graphs), first

    def _operands(self, node: Node) -> list[tuple[int, ...]]:
        """Return the parts of each operand; of a real one itself."""
        return [self._pair(o, node) if is_complex(self._graph[o].type) else (self._value(o),) for o in node.operands]

    def _in_parts(self, node: Node) -> Pair:
        """Add the operations on parts that a complex value is made by."""
        type_ = part_of(node.tensor)
        arithmetic = Arithmetic(self._builder, node, type_)
        if node.op == "constant":
            assert node.literal is not None
            literals = (np.real(node.literal), np.imag(node.literal))
            real, imaginary = (self._builder.constant(node, type_.dtype, np.asarray(part)) for part in literals)
            return real, imaginary
        if node.op == "complex":
            real, imaginary = map(self._value, node.operands)
            return real, imaginary
        if node.op == "convert":
            return self._converted(node, type_)
        if node.op == "dot":
            return self._product(node, arithmetic)
        if node.op in ARITHMETIC:
            real, imaginary = ARITHMETIC[node.op](arithmetic, self._operands(node))
            return real, imaginary
        real, imaginary = (self._moved(node, type_, part) for part in (0, 1))
        return real, imaginary

    def _moved(self, node: Node, type_: TensorType, part: int) -> int:
        """Add what moves or sums the elements of one part."""
        operands = [values[part if len(values) > 1 else 0] for values in self._operands(node)]
        graphs = {k: _real_combiner(g, type_.dtype) for k, g in node.graphs.items()}
        return self._builder.derive(node, node.op, type_, operands, node.attributes, graphs)

    def _converted(self, node: Node, type_: TensorType) -> Pair:
        source = self._graph[node.operands[0]]
        if is_complex(source.type):
            real, imaginary = (
                self._builder.derive(node, "convert", type_, [part]) for part in self._pair(source.id, node)
            )
            return real, imaginary
        real, zero = self._value(source.id), Arithmetic(self._builder, node, type_).number(0.0)
        if source.type != type_:
            real = self._builder.derive(node, "convert", type_, [real])
        return real, zero

    def _product(self, node: Node, arithmetic: Arithmetic) -> Pair:
        """Add a product of matrices by four real ones."""
        (a, b), (c, d) = self._operands(node)

        def product(x: int, y: int) -> int:
            return self._builder.derive(node, "dot", arithmetic.type, [x, y], node.attributes)

        return (
            arithmetic.op("subtract", product(a, c), product(b, d)),
            arithmetic.op("add", product(a, d), product(b, c)),
        )

    def _real_of(self, node: Node) -> int:
        """Add what makes a real value of complex ones: an absolute value, a comparison, a conversion."""
        values = self._operands(node)
        part = part_of(self._graph[node.operands[0]].tensor)
        arithmetic = Arithmetic(self._builder, node, part)
        if node.op == "convert":
            return self._builder.derive(node, "convert", node.type, [values[0][0]])
        (made,) = ARITHMETIC[node.op](arithmetic, values)
        return made


def _known_part(builder: Builder, node: Node) -> int | None:
    """Return the part itself of a complex value that was put together, and the value that was taken apart."""
    if node.op in ("real", "imag"):
        whole = builder[node.operands[0]]
        return whole.operands[node.op == "imag"] if whole.op == "complex" else None
    if node.op != "complex":
        return None
    real, imaginary = (builder[o] for o in node.operands)
    is_whole = (real.op, imaginary.op) == ("real", "imag") and real.operands == imaginary.operands
    return real.operands[0] if is_whole else None


def _carried_apart(body: Graph) -> frozenset[int]:
    """Return the numbers of the complex values that a loop carries in parts: all but what no iteration changes, and
    what iterations only write into, slice by slice. Those stay in memory as they are.
    """
    apart = set()
    for number, (p, r) in enumerate(zip(body.parameters, body.results, strict=True)):
        is_stacked = body[r].op == "dynamic-update-slice" and body[r].operands[0] == p and body.users[p] == (r,)
        if is_complex(body[p].type) and p != r and not is_stacked:
            apart.add(number)
    return frozenset(apart)


def _chosen(graph: Graph, whole: Collection[str] = ()) -> set[int]:
    return {n.id for n in graph.nodes if n.name not in whole and can_be_split(graph, n)}


def _real_combiner(graph: Graph, dtype: str) -> Graph:
    """Return the sum of two real numbers in place of that of two complex ones."""
    builder, type_ = Builder(graph.name), TensorType(dtype, ())
    a, b = builder.parameter(type_), builder.parameter(type_)
    made = builder.derive(graph[graph.results[0]], "add", type_, [a, b])
    return builder.finish([made], graph.single, GraphLayouts())
