"""What XLA's parser asks of an instruction besides its grammar; the rest is for the verifier.

Each check gets the result's shape, the operands' shapes and the attributes, and returns what is wrong or "".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..shapes import ArrayShape, Shape, TupleShape, compatible
from ..values import Verbatim

Check = Callable[[Shape, Sequence[Shape], Mapping[str, Any]], str]


def _tuple(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
    parts = len(shape.elements) if isinstance(shape, TupleShape) else -1
    if parts < 0:
        return f"the result of a tuple cannot be {shape}"
    return f"a tuple of {parts} parts has {parts} operands, not {len(operands)}" if parts != len(operands) else ""


def _even(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
    n = len(operands)
    return "" if n and n % 2 == 0 else f"needs as many initial values as inputs; {n} operands are not even"


def _scatter(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
    n = len(operands)
    return "" if n % 2 and n > 1 else f"a scatter has inputs, indices and as many updates as inputs, not {n} operands"


def _one_dimension(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
    axes = attributes.get("dimensions", (0,))
    return "" if isinstance(axes, Verbatim) or len(axes) == 1 else f"dimensions {axes} must name one"


def _conditional(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
    which = operands[0] if operands else None
    if not (isinstance(which, ArrayShape) and which.rank == 0 and which.dtype in ("pred", "s32")):
        return f"the first operand of a conditional is pred[] or s32[], not {which}"
    needed = ("true_computation", "false_computation") if which.dtype == "pred" else ("branch_computations",)
    for key in needed:
        if key not in attributes:
            return f"a conditional on {which} needs {key}="
    branches = 2 if which.dtype == "pred" else len(attributes["branch_computations"])
    have = len(operands) - 1
    return "" if branches == have else f"{branches} branches for {have} operands besides the first"


def _starts(fixed: int) -> Check:
    """Start indices behind so many operands: one for each dimension, or a vector of them."""

    def check(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
        x = operands[0] if operands else None
        if len(operands) < fixed or not isinstance(x, ArrayShape):
            return f"needs at least {fixed} operands, the first an array"
        starts = operands[fixed:]
        vector = len(starts) == 1 and isinstance(starts[0], ArrayShape) and starts[0].rank == 1
        return "" if vector or len(starts) == x.rank else f"{len(starts)} start indices for the {x.rank} of {x}"

    return check


def _async_start(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
    good = isinstance(shape, TupleShape) and len(shape.elements) > 1 and isinstance(shape.elements[0], TupleShape)
    return "" if good else f"the result of an async-start is ((operands), result, state), not {shape}"


def _async_update(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
    return "" if compatible(shape, operands[0]) else f"the result of an async-update is its operand's, not {shape}"


def _pairs(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
    wrong = [p for p in attributes["source_target_pairs"] if len(p) != 2]
    return f"source_target_pairs are pairs, not {wrong[0]}" if wrong else ""


def _group_mode(shape: Shape, operands: Sequence[Shape], attributes: Mapping[str, Any]) -> str:
    bad = attributes.get("use_global_device_ids") is True and "channel_id" not in attributes
    return "use_global_device_ids=true needs channel_id=" if bad and "mode" not in attributes else ""


CHECKS: dict[str, Check] = {
    **dict.fromkeys(("all-reduce", "all-reduce-start", "reduce-scatter"), _group_mode),
    **dict.fromkeys(("reduce", "reduce-window"), _even),
    **dict.fromkeys(("sort", "concatenate", "all-to-all", "scan"), _one_dimension),
    **dict.fromkeys(("collective-permute", "collective-permute-start"), _pairs),
    "async-start": _async_start,
    "async-update": _async_update,
    "conditional": _conditional,
    "dynamic-slice": _starts(1),
    "dynamic-update-slice": _starts(2),
    "scatter": _scatter,
    "tuple": _tuple,
}
"""By opcode."""
