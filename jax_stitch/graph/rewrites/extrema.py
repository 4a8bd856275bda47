"""Expansion of ``argmax`` and ``argmin`` into an extremum and the least index of what equals it.

A reduction of pairs is not vectorised by a C++ compiler, nor by XLA:CPU. Two reductions of single values are, and the
second reads what a cache holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np

from hlo_parser import ELEMENT_TYPES

from ..builder import Builder, copied
from ..model import Graph, Node, TensorType

_LESS, _EQUAL, _GREATER, _LEFT_NAN, _RIGHT_NAN, _BOTH_NAN = range(6)
"""How the left value is to the right one."""

_TRUE_OF = {"LT": {_LESS}, "GT": {_GREATER}, "EQ": {_EQUAL}, "LE": {_LESS, _EQUAL}, "GE": {_GREATER, _EQUAL}}
"""In which of these cases a comparison of left and right is true; ``NE`` in all but one."""


_SWAPPED = {_LESS: _GREATER, _GREATER: _LESS}
"""The same where the right value is compared to the left one."""


def with_extrema(graph: Graph, marks: Callable[[Node], Mapping[str, int]] = lambda values: {}) -> Graph:
    """Return the graph with each ``argmax`` and ``argmin`` expanded. Called computations stay as they are. ``marks``
    are the attributes of the last operation, by what is reduced.
    """
    found = {n.id: by for n in graph.nodes if (by := _extremum(graph, n)) is not None}
    if not found:
        return graph

    def instead(builder: Builder, node: Node, ids: dict[int, int]) -> int | None:
        if node.op == "get-tuple-element" and node.operands[0] in found:
            return pairs[node.operands[0]][node.attributes["index"]]
        if node.id not in found:
            return None
        pairs[node.id] = _expanded(builder, node, ids, found[node.id], marks)
        return pairs[node.id][0]

    pairs: dict[int, tuple[int, int]] = {}
    return copied(graph, instead)


def _extremum(graph: Graph, node: Node) -> str | None:
    """Return ``maximum`` or ``minimum`` where a node reduces values with it, and with their indices along the one
    dimension that goes; None for other nodes.
    """
    if node.op != "reduce" or len(node.operands) != 4 or node.id in graph.result_set:
        return None
    values, indices, first, zero = (graph[o] for o in node.operands)
    if indices.op != "iota" or node.attributes["dimensions"] != (indices.attributes["iota_dimension"],):
        return None
    is_number = ELEMENT_TYPES[values.tensor.dtype].kind in ("float", "int")
    by = picked_by(node.graphs["to_apply"]) if is_number else None
    if by is None or first.literal is None or zero.literal is None or zero.literal != 0:
        return None
    is_neutral = first.literal == _least(values.tensor.dtype, by)
    return by if is_neutral and _counts(indices.tensor, node) else None


def _least(dtype: str, by: str) -> float | int:
    """Return the neutral value of an extremum."""
    if ELEMENT_TYPES[dtype].kind == "float":
        return -np.inf if by == "maximum" else np.inf
    limits = np.iinfo(ELEMENT_TYPES[dtype].numpy)
    return int(limits.min if by == "maximum" else limits.max)


def _counts(indices: TensorType, node: Node) -> bool:
    """Return whether the indices' type has all indices, and one more."""
    kind = ELEMENT_TYPES[indices.dtype]
    length = indices.dims[node.attributes["dimensions"][0]]
    return kind.kind == "int" and length < 1 << (kind.bits - indices.dtype.startswith("s"))


def picked_by(combiner: Graph) -> str | None:
    """Return ``maximum`` or ``minimum`` where a combiner of two pairs, each a value and its index, returns the greater
    or lesser value and its index, of equal ones and of NaNs the lesser index; of a number and NaN NaN.
    """
    a, i, b, j = combiner.parameters if len(combiner.parameters) == 4 else (-1,) * 4
    if len(combiner.results) != 2 or a < 0:
        return None
    value, index = (combiner[r] for r in combiner.results)
    if value.op != "select" or value.operands[1:] != (a, b) or index.op != "select" or index.operands[1:] != (i, j):
        return None
    has_nan = ELEMENT_TYPES[combiner[a].tensor.dtype].kind == "float"
    for by, better in (("maximum", _GREATER), ("minimum", _LESS)):
        for case, is_first in itertools.product(range(6 if has_nan else 3), (False, True)):
            takes = {v.operands[0]: _truth(combiner, v.operands[0], case, is_first) for v in (value, index)}
            is_tie = case in (_EQUAL, _BOTH_NAN)
            wanted = is_first if is_tie else case in (better, _LEFT_NAN)
            if takes[index.operands[0]] != wanted or (not is_tie and takes[value.operands[0]] != wanted):
                break
        else:
            return by
    return None


def _truth(combiner: Graph, number: int, case: int, is_first: bool) -> bool | None:
    """Return whether a value of a combiner is true in a case, if the left index is the lesser one; None if unknown."""
    node = combiner[number]
    if node.op in ("and", "or", "not"):
        truths = [_truth(combiner, o, case, is_first) for o in node.operands]
        if None in truths:
            return None
        return not truths[0] if node.op == "not" else (all if node.op == "and" else any)(truths)
    if node.op != "compare" or node.attributes.get("type") == "TOTALORDER":
        return None
    (a, i, b, j), direction = combiner.parameters, node.attributes["direction"]
    cases: dict[tuple[int, ...], int] = {
        (a, b): case,
        (b, a): _SWAPPED.get(case, case),
        (i, j): _LESS if is_first else _GREATER,
        (j, i): _GREATER if is_first else _LESS,
        (a, a): _LEFT_NAN if case in (_LEFT_NAN, _BOTH_NAN) else _EQUAL,
        (b, b): _RIGHT_NAN if case in (_RIGHT_NAN, _BOTH_NAN) else _EQUAL,
    }
    here = cases.get(node.operands)
    if here is None:
        return None
    return here != _EQUAL if direction == "NE" else here in _TRUE_OF[direction]


def _expanded(
    builder: Builder, node: Node, ids: Mapping[int, int], by: str, marks: Callable[[Node], Mapping[str, int]]
) -> tuple[int, int]:
    """Add the extremum and the least index; return both."""
    values, indices, first, _ = (ids[o] for o in node.operands)
    kind, counted = builder[values].tensor, builder[indices].tensor
    flag = TensorType("pred", kind.dims)
    kept = tuple(d for d in range(len(kind.dims)) if d not in node.attributes["dimensions"])
    best = builder.reduce(node, by, [values, first], node.attributes["dimensions"])
    wide = builder.derive(node, "broadcast", kind, [best], {"dimensions": kept})
    found = builder.derive(node, "compare", flag, [values, wide], {"direction": "EQ"})
    if ELEMENT_TYPES[kind.dtype].kind == "float":  # Where there is a NaN, it is the extremum, and equal to nothing.
        nan = builder.derive(node, "compare", flag, [values, values], {"direction": "NE"})
        found = builder.derive(node, "or", flag, [found, nan])
    most = np.iinfo(ELEMENT_TYPES[counted.dtype].numpy).max
    last = builder.constant(node, counted.dtype, np.asarray(most, ELEMENT_TYPES[counted.dtype].numpy))
    beyond = builder.derive(node, "broadcast", counted, [last], {"dimensions": ()})
    chosen = builder.derive(node, "select", counted, [found, indices, beyond])
    least = builder.reduce(node, "minimum", [chosen, last], node.attributes["dimensions"], marks(builder[values]))
    return best, least
