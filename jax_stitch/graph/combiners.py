"""What can be told of the computation that a reduction combines with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from hlo_parser import ELEMENT_TYPES

from .builder import Builder
from .model import Graph, Node
from .rewrites.fold import COMPARE


def is_neutral(combiner: Graph, initial: Node) -> bool:
    """Return whether combining with ``initial`` changes nothing: it is the neutral value of the one operation there
    is.
    """
    if initial.literal is None or initial.literal.size != 1:
        return False
    neutral = neutral_value(combiner, initial.tensor.dtype)
    return neutral is not None and bool(initial.literal.reshape(()) == neutral)


def neutral_value(combiner: Graph, dtype: str) -> Any | None:
    """Return the neutral value of a combiner of scalars of ``dtype``; None unless it is one known operation. XLA's CPU
    compiler computes those of narrow floats in a wider type.
    """
    if len(combiner.parameters) != 2:
        return None
    op = combines_by(combiner, 0)
    return None if op is None else _neutral(op, dtype)


def counts_once(combiner: Graph, initials: Sequence[Node]) -> str | None:
    """Return the operation of a combiner of several arrays for which an initial value counts each time it is combined
    with, since it is not the neutral one. JAX says that it has to be; XLA's results are what one would expect all the
    same.
    """
    for k, initial in enumerate(initials):
        op = combines_by(combiner, k)
        if op not in _ACCUMULATES:
            continue
        neutral = _neutral(op, initial.tensor.dtype)
        if initial.literal is None or initial.literal.size != 1 or initial.literal.reshape(()) != neutral:
            return op
    return None


_ACCUMULATES = frozenset({"add", "multiply", "xor"})
"""Operations that make something else of two equal values."""


def combines_by(combiner: Graph, k: int) -> str | None:
    """Return the one operation that the ``k``-th result is made by, of the ``k``-th values of both sides."""
    fields = len(combiner.parameters) // 2
    node = _unconverted(combiner, combiner[combiner.results[k]])
    if len(node.operands) != 2:
        return None
    sides = [_unconverted(combiner, combiner[o]).id for o in node.operands]
    return node.op if set(sides) == {combiner.parameters[k], combiner.parameters[k + fields]} else None


def leaves_others(combiner: Graph, initial: Node) -> bool:
    """Return whether combining with ``initial`` changes nothing: as ``is_neutral`` says, or, of floats that more than
    one operation combines (``logaddexp`` from minus infinity), as it was tried with some numbers, infinities and NaN.
    """
    if is_neutral(combiner, initial):
        return True
    kind = ELEMENT_TYPES[initial.tensor.dtype]
    if initial.literal is None or initial.literal.size != 1 or kind.kind != "float" or len(combiner.parameters) != 2:
        return False
    others = np.array([0, 1, -1, 1 / 3, -2.5, 19, -77, 3e4, np.inf, -np.inf, np.nan], kind.numpy)
    same = np.full(others.shape, initial.literal.reshape(()), kind.numpy)
    with np.errstate(all="ignore"):
        return all(
            found is not None and np.array_equal(found, others, equal_nan=True)
            for found in (_computed(combiner, *sides) for sides in ((others, same), (same, others)))
        )


def _computed(combiner: Graph, *arguments: np.ndarray) -> np.ndarray | None:
    """Return the first result, by NumPy; None where an operation is not among those of usual combiners."""
    values: dict[int, Any] = dict(zip(combiner.parameters, arguments, strict=True))
    for node in combiner.nodes:
        if node.op == "constant" and node.literal is not None and node.literal.size == 1:
            values[node.id] = node.literal.reshape(())
        elif node.op == "compare":
            values[node.id] = COMPARE[node.attributes["direction"]](*(values[o] for o in node.operands))
        elif node.op in _USUAL:
            values[node.id] = _USUAL[node.op](*(values[o] for o in node.operands))
        elif node.op != "parameter":
            return None
    return values[combiner.results[0]]


_USUAL: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "abs": np.abs,
        "add": np.add,
        "exponential": np.exp,
        "log": np.log,
        "log-plus-one": np.log1p,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "multiply": np.multiply,
        "negate": np.negative,
        "select": np.where,
        "subtract": np.subtract,
    }
)


def application(graph: Graph | Builder, node: Node, combiner: Graph) -> tuple[int, ...] | None:
    """Return what the operations that end in ``node`` combine, where they are those of ``combiner`` on whole arrays:
    a value for each of its parameters. None where they are others.
    """
    found: dict[int, int] = {}
    waiting = [(combiner[combiner.results[0]], node)]
    while waiting:
        form, here = waiting.pop()
        if form.op == "parameter":
            if found.setdefault(form.id, here.id) != here.id:
                return None
        elif form.op == "constant":
            constant = graph[here.operands[0]] if here.op == "broadcast" else here
            if constant.literal is None or form.literal is None or not np.array_equal(constant.literal, form.literal):
                return None
        elif form.op != here.op or form.attributes != here.attributes:
            return None
        else:
            waiting.extend((combiner[f], graph[h]) for f, h in zip(form.operands, here.operands, strict=True))
    return tuple(found[p] for p in combiner.parameters) if len(found) == len(combiner.parameters) else None


def are_alike(a: Graph, b: Graph) -> bool:
    """Return whether two combiners of scalars have the same operations."""
    return application(b, b[b.results[0]], a) == tuple(b.parameters)


def _unconverted(combiner: Graph, node: Node) -> Node:
    """Return what a narrow float was converted from, or a wide one was."""
    while node.op == "convert":
        source = combiner[node.operands[0]]
        if not all(ELEMENT_TYPES[n.tensor.dtype].kind == "float" for n in (node, source)):
            break
        node = source
    return node


def _neutral(op: str, dtype: str) -> Any:
    kind = ELEMENT_TYPES[dtype].kind
    match op:
        case "add" | "or" | "xor":
            return False if kind == "pred" else 0
        case "multiply":
            return True if kind == "pred" else 1
        case "and":
            return True if kind == "pred" else _limits(dtype)[1] if dtype[0] == "u" else -1
        case "maximum" if kind != "complex":
            return _limits(dtype)[0]
        case "minimum" if kind != "complex":
            return _limits(dtype)[1]
    return None


def _limits(dtype: str) -> tuple[Any, Any]:
    """Return the values below and above all others."""
    numpy, kind = ELEMENT_TYPES[dtype].numpy, ELEMENT_TYPES[dtype].kind
    if kind == "float":
        return -np.inf, np.inf
    if kind == "pred":
        return False, True
    info = ml_dtypes.iinfo(numpy)
    return info.min, info.max
