"""Which operands of an operation are donated, read from the program that is being lowered around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax_stitch.frontend.capture.program import ALIASING
from jax_stitch.util.jax_names import ir


def donated(operands: Sequence[Any]) -> tuple[int, ...]:
    """Return the operands, by number, that are arguments of the whole program which it may overwrite.

    Only where all operands are arguments of it, each another: of values that are computed before, XLA may find that
    they are one.
    """
    if not operands or not all(isinstance(value, ir.BlockArgument) for value in operands):
        return ()
    block = operands[0].owner
    places = [value.arg_number for value in operands]
    if any(value.owner != block for value in operands) or len(set(places)) != len(places):
        return ()
    around = block.owner.operation
    if around.name != "func.func" or str(around.attributes["sym_name"]) != '"main"':
        return ()
    if "arg_attrs" not in around.attributes:
        return ()
    given = ir.ArrayAttr(around.attributes["arg_attrs"])
    return tuple(k for k, place in enumerate(places) if ALIASING in ir.DictAttr(given[place]))
