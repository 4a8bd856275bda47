"""What can be told of the computation that a reduction combines with."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from hlo_parser import ELEMENT_TYPES

from .model import Graph, Node


def is_neutral(combiner: Graph, initial: Node) -> bool:
    """Whether combining with ``initial`` changes nothing: it is the neutral value of the one operation there is."""
    if initial.literal is None or initial.literal.size != 1:
        return False
    neutral = neutral_value(combiner, initial.tensor.dtype)
    return neutral is not None and bool(initial.literal.reshape(()) == neutral)


def neutral_value(combiner: Graph, dtype: str) -> Any | None:
    """What changes nothing when combined with, of a combiner of scalars of ``dtype``; None unless that is one known
    operation."""
    operations = [n for n in combiner.nodes if n.op != "parameter"]
    if len(operations) != 1 or len(combiner.parameters) != 2:
        return None
    if set(operations[0].operands) != set(combiner.parameters) or combiner.results != (operations[0].id,):
        return None
    return _neutral(operations[0].op, dtype)


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
    """The values below and above all others."""
    numpy, kind = ELEMENT_TYPES[dtype].numpy, ELEMENT_TYPES[dtype].kind
    if kind == "float":
        return -np.inf, np.inf
    if kind == "pred":
        return False, True
    info = ml_dtypes.iinfo(numpy)
    return info.min, info.max
