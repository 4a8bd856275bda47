"""What can be told of the computation that a reduction combines with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from hlo_parser import ELEMENT_TYPES

from .model import Graph, Node


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
