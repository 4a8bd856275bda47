"""Small constants calculated now. Only operations whose result is exact (or correctly rounded) everywhere are
folded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo_parser import ELEMENT_TYPES

from ..builder import Builder
from ..model import Node, TensorType

LARGEST = 64
"""Elements; what is larger stays an operation."""

COMPARE: dict[str, Callable[..., Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def fold(builder: Builder, node: Node) -> int | None:
    """Return a constant for a node whose operands are all constants. ``broadcast`` and ``iota`` stay: they say more
    than their elements do."""
    if (
        node.op not in _FOLDERS
        or not isinstance(node.type, TensorType)
        or node.type.size > LARGEST
        or not node.operands
    ):
        return None
    literals = [builder[o].literal for o in node.operands]
    if any(v is None for v in literals):
        return None
    with np.errstate(all="ignore"):
        value = _FOLDERS[node.op](node, [v for v in literals if v is not None])
    if value is None:
        return None
    value = np.asarray(value, ELEMENT_TYPES[node.type.dtype].numpy)
    return builder.constant(node, node.type.dtype, value.reshape(node.type.dims))


def _numeric(function: Callable[..., Any]) -> Callable[[Node, Sequence[np.ndarray]], Any]:
    """Return a fold for integers and IEEE floats alike; narrow floats and complex are left to XLA."""

    def folder(_: Node, values: Sequence[np.ndarray]) -> Any:
        return function(*values) if all(v.dtype.kind in "iuf" and v.dtype.isbuiltin for v in values) else None

    return folder


def _integral(function: Callable[..., Any]) -> Callable[[Node, Sequence[np.ndarray]], Any]:
    def folder(_: Node, values: Sequence[np.ndarray]) -> Any:
        return function(*values) if all(v.dtype.kind in "iub" and v.dtype.isbuiltin for v in values) else None

    return folder


def _shift(function: Callable[..., Any]) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Return the fold of a shift: HLO gives 0 for a shift by the width or more; the hardware and NumPy do not."""

    def shift(x: np.ndarray, by: np.ndarray) -> Any:
        bits = 8 * x.dtype.itemsize
        unsigned, amount = x.view(f"u{x.dtype.itemsize}"), by.astype(np.uint64)
        moved = function(unsigned, np.minimum(amount, bits - 1).astype(unsigned.dtype))
        return np.where(amount < bits, moved, 0).astype(unsigned.dtype).view(x.dtype)

    return shift


def _exact_convert(node: Node, values: Sequence[np.ndarray]) -> Any:
    """Convert between integers (modulo 2^n), and from integers and pred to floats. From floats XLA saturates:
    left to it.
    """
    value, target = values[0], ELEMENT_TYPES[node.tensor.dtype]
    if (
        value.dtype.kind not in "iub"
        or not value.dtype.isbuiltin
        or not target.numpy.isbuiltin
        or target.kind == "complex"
    ):
        return None
    return value != 0 if target.kind == "pred" else value.astype(target.numpy)


def _slice(node: Node, values: Sequence[np.ndarray]) -> Any:
    return values[0][tuple(slice(*r) for r in node.attributes["slice"])]


def _compare(node: Node, values: Sequence[np.ndarray]) -> Any:
    if node.attributes.get("type") == "TOTALORDER":
        return None
    return COMPARE[node.attributes["direction"]](*values)


SCALAR_FOLDERS: dict[str, Callable[[Node, Sequence[np.ndarray]], Any]] = {
    "add": _numeric(np.add),
    "subtract": _numeric(np.subtract),
    "multiply": _numeric(np.multiply),
    "maximum": _numeric(np.maximum),
    "minimum": _numeric(np.minimum),
    "negate": _numeric(np.negative),
    "and": _integral(np.bitwise_and),
    "or": _integral(np.bitwise_or),
    "xor": _integral(np.bitwise_xor),
    "not": _integral(np.invert),
    "shift-left": _integral(_shift(np.left_shift)),
    "shift-right-logical": _integral(_shift(np.right_shift)),
    "compare": _compare,
    "convert": _exact_convert,
    "select": lambda _, v: np.where(*v),
}
"""Of operations that work element by element: also of many at once."""

_FOLDERS: dict[str, Callable[[Node, Sequence[np.ndarray]], Any]] = {
    **SCALAR_FOLDERS,
    "reshape": lambda node, v: v[0].reshape(node.tensor.dims),
    "transpose": lambda node, v: v[0].transpose(node.attributes["dimensions"]),
    "slice": _slice,
    "concatenate": lambda node, v: np.concatenate(v, node.attributes["dimensions"][0]),
    "reverse": lambda node, v: np.flip(v[0], node.attributes["dimensions"]),
}
