"""``argmax`` and ``argmin`` whose result does not depend on the order in which elements meet.

Their combiner takes the left one of two NaNs, whatever their indices: the first NaN where a row is gone through in
order, any of them where lanes share it. Here it takes the one with the smaller index, as it does of equal numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from hlo_parser.dtypes import ELEMENT_TYPES

from ..builder import Builder, moved
from ..model import Graph, Node, TensorType


def first_nan(builder: Builder, node: Node) -> int | None:
    """Return a reduction of values and indices with the combiner of ``jnp.argmax`` or ``jnp.argmin``, the same for NaNs
    in any order.
    """
    if node.op != "reduce" or len(node.operands) != 4 or _wraps(builder, node):
        return None
    combiner = node.graphs["to_apply"]
    picks = _picks(combiner)
    if picks is None:
        return None
    return builder.derive(
        node, "reduce", node.type, node.operands, node.attributes, {"to_apply": _with(combiner, picks)}
    )


def takes_the_left_nan(combiner: Graph) -> bool:
    """Return whether a combiner is that of ``jnp.argmax`` or ``jnp.argmin`` as JAX writes it: the left one of two
    NaNs.
    """
    return _picks(combiner) is not None


def _wraps(builder: Builder, node: Node) -> bool:
    """Return whether the indices do not fit their type: the smaller one then says nothing of which NaN comes first."""
    values, indices = (builder[o].tensor for o in node.operands[:2])
    kind = ELEMENT_TYPES[indices.dtype]
    length = prod(values.dims[d] for d in node.attributes["dimensions"])
    return kind.kind == "int" and length > 1 << (kind.bits - indices.dtype.startswith("s"))


def _picks(combiner: Graph) -> Node | None:
    return next((n for n in combiner.nodes if _picked(combiner, n) is not None), None)


def _picked(graph: Graph, node: Node) -> tuple[Node, Node, Node, Node] | None:
    """Return the comparisons of ``or(or(a < b, a is NaN), and(a == b, i < j))``, or of the same with ``>``."""
    for value, tie in _either(graph, node, "or"):
        for better, nan in _either(graph, value, "or"):
            for equal, first in _either(graph, tie, "and"):
                a, b = better.operands if better.op == "compare" else (-1, -1)
                is_value = _compares(better, ("LT", "GT"), (a, b)) and _compares(nan, ("NE",), (a, a))
                is_tie = _compares(equal, ("EQ",), (a, b)) and _compares(first, ("LT",), first.operands)
                if a != b and is_value and is_tie and not {a, b} & set(first.operands):
                    return better, nan, equal, first
    return None


def _either(graph: Graph, node: Node, op: str) -> Iterator[tuple[Node, Node]]:
    """Yield the operands of a binary operation, either first; nothing of another operation."""
    if node.op == op and len(node.operands) == 2:
        left, right = (graph[o] for o in node.operands)
        yield left, right
        yield right, left


def _compares(node: Node, directions: tuple[str, ...], operands: tuple[int, ...]) -> bool:
    plain = node.op == "compare" and node.attributes.get("type") != "TOTALORDER"
    return plain and node.attributes["direction"] in directions and node.operands == operands


def _with(graph: Graph, picks: Node) -> Graph:
    """Return the combiner that picks by index where both are NaN."""
    picked = _picked(graph, picks)
    assert picked is not None
    builder, flag = Builder(graph.name), TensorType("pred", ())
    ids = {i: builder.parameter(graph[i].type, graph[i].name, graph[i].source) for i in graph.parameters}
    for node in graph.nodes:
        if node.id in ids:
            continue
        if node.id != picks.id:
            ids[node.id] = builder.add(moved(node, -1, tuple(ids[o] for o in node.operands)))
            continue
        better, nan, equal, first = (ids[n.id] for n in picked)
        b = ids[picked[0].operands[1]]
        number = builder.derive(node, "compare", flag, [b, b], {"direction": "EQ"})
        goes_first = builder.derive(node, "or", flag, [number, first])
        of_nans = builder.derive(node, "and", flag, [nan, goes_first])
        of_equals = builder.derive(node, "and", flag, [equal, first])
        either = builder.derive(node, "or", flag, [of_nans, of_equals])
        ids[node.id] = builder.derive(node, "or", flag, [better, either])
    return builder.finish([ids[r] for r in graph.results], graph.single, graph.layouts)
