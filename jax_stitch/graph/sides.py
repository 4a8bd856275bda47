"""Reductions that take the first of several elements, or the last: their combiner tells its sides apart.

XLA says that the order of a reduction is open, and goes through the elements one after the other on a CPU all the same;
``lax.reduce`` with ``where(a != 0, a, b)`` is the first element that is not zero there. Lanes that share a row combine
elements in another order. Such a reduction is left to XLA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo_parser import ELEMENT_TYPES

from .combiners import combines_by
from .model import Graph, Node, TensorType
from .rewrites.fold import SCALAR_FOLDERS

SAMPLES = 512
"""Pairs of values that a combiner is tried on: of so few numbers that many are equal."""


def tells_sides_apart(combiner: Graph) -> bool:
    """Return whether a combiner gives something else where its sides are exchanged, for some small whole numbers, by
    more than a rounding. Of one with an operation that is not known here, the answer is no.
    """
    fields = len(combiner.parameters) // 2
    if all(combines_by(combiner, k) in _EXCHANGEABLE for k in range(fields)):
        return False
    rng = np.random.default_rng(0)
    given = [_sample(rng, combiner[p].tensor.dtype) for p in combiner.parameters]
    one, other = _evaluated(combiner, given), _evaluated(combiner, [*given[fields:], *given[:fields]])
    if one is None or other is None:
        return False
    return not all(np.allclose(a, b, rtol=_ROUNDING, atol=0, equal_nan=True) for a, b in zip(one, other, strict=True))


_ROUNDING = 1e-9
"""Between results in double precision."""

_EXCHANGEABLE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})


def _sample(rng: np.random.Generator, dtype: str) -> np.ndarray:
    kind = ELEMENT_TYPES[dtype].kind
    if kind == "pred":
        return rng.random(SAMPLES) < 0.5
    numbers = rng.integers(0 if dtype[0] == "u" else -2, 3, SAMPLES)
    return numbers.astype(np.float64 if kind == "float" else ELEMENT_TYPES[dtype].numpy)


def _evaluated(combiner: Graph, given: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Return the results for many values at once, floats in double precision; None where that takes an unknown
    operation.
    """
    values = dict(zip(combiner.parameters, given, strict=True))
    with np.errstate(all="ignore"):
        for node in combiner.nodes:
            if node.id not in values:
                made = _value(node, [values[o] for o in node.operands])
                if made is None:
                    return None
                values[node.id] = made
    return [values[r] for r in combiner.results]


def _value(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray | None:
    if not isinstance(node.type, TensorType) or node.tensor.size != 1:
        return None
    kind = ELEMENT_TYPES[node.tensor.dtype].kind
    if node.op == "constant":
        if node.literal is None or kind == "complex":
            return None
        return np.full(SAMPLES, node.literal.reshape(()), np.float64 if kind == "float" else node.literal.dtype)
    if node.op == "convert" and kind == "float" and operands[0].dtype.kind in "iubf":
        return operands[0].astype(np.float64)
    if node.op in _MORE and operands[0].dtype.kind in "if":
        return np.asarray(_MORE[node.op](*operands))
    fold = SCALAR_FOLDERS.get(node.op)
    made = None if fold is None else fold(node, operands)
    return None if made is None else np.asarray(made)


_MORE: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "clamp": lambda low, value, high: np.minimum(np.maximum(value, low), high),
    "divide": lambda a, b: a / b if a.dtype.kind == "f" else np.where(b == 0, -1, np.trunc(a / b)).astype(a.dtype),
    "exp2": np.exp2,
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "is-finite": np.isfinite,
    "log": np.log,
    "log-plus-one": np.log1p,
    "log2": np.log2,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
"""Besides those that give the same everywhere, to the last bit."""
