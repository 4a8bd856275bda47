"""Which instructions and computations of a module have effects: what its graph will say of nodes (``has_effect``)."""

from __future__ import annotations

from collections.abc import Collection

from hlo_parser import Instruction, Module
from hlo_parser.rewrite import called
from jax_stitch.util.python_targets import is_python_call

from .opcodes import EFFECTS


def computations_with_effect(module: Module) -> frozenset[str]:
    """Return names of the computations of a module in which something has an effect, or in what they call."""
    names: set[str] = set()
    for computation in module.computations:  # those that are called come first
        if any(instruction_has_effect(i, names) for i in computation):
            names.add(computation.name)
    return frozenset(names)


def instruction_has_effect(i: Instruction, effectful: Collection[str]) -> bool:
    """Return ``has_effect`` of what an instruction will be; ``effectful`` are the computations that have one."""
    if i.opcode.removesuffix("-start") in EFFECTS or i.attributes.get("custom_call_has_side_effect", False):
        return True
    if i.opcode == "custom-call" and is_python_call(str(i.attributes.get("custom_call_target", ""))):
        return True
    return bool(effectful) and any(name in effectful for name in called(i))
