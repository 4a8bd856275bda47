"""Applies the rules of operations to every instruction of a module."""

from __future__ import annotations

from ..attributes import Sharding
from ..model import Module
from ..requirements import ATTRIBUTES, LEAST_OPERANDS, OPERANDS
from ..shapes import Shape
from . import computation_rules, data_rules, numeric_rules
from .collective_rules import check_operand_aliases
from .fault import Fault
from .layout_faults import layout_faults
from .module_faults import module_faults
from .pair_faults import pair_faults
from .rules import RULES, Broken, NotJudged, Operation, is_dynamic
from .sharding_faults import sharding_fault

REGISTERED = (computation_rules, data_rules, numeric_rules)
"""Modules whose import fills ``RULES``."""


def operation_faults(module: Module) -> list[Fault]:
    """Return faults of operands, attributes and shapes, of a module whose names resolve."""
    faults: list[Fault] = []
    computations = {c.name: c for c in module.computations}
    for c in module.computations:
        shapes: dict[str, Shape] = {}
        for i in c:
            operation = Operation(i, tuple(shapes[name] for name in i.operands), computations, module.attributes)
            shapes[i.name] = operation.result
            faults += [Fault(message, c.name, i.name) for message in _faults(operation)]
        faults += pair_faults(c)
    faults += module_faults(module)
    # Of shapes that are wrong the layouts say nothing.
    return faults or list(layout_faults(module))


def _faults(operation: Operation) -> list[str]:
    i = operation.instruction
    n = len(operation.operands)
    messages = [f"{i.opcode} needs {key}=" for key in ATTRIBUTES.get(i.opcode, ()) if key not in i.attributes]
    if n != OPERANDS.get(i.opcode, n):
        messages.append(f"{i.opcode} has {OPERANDS[i.opcode]} operands, not {n}")
    elif n < LEAST_OPERANDS.get(i.opcode, 0):
        messages.append(f"{i.opcode} has at least {LEAST_OPERANDS[i.opcode]} operands, not {n}")
    sharding = i.attributes.get("sharding")
    if isinstance(sharding, Sharding):
        fault = sharding_fault(sharding, i.shape, operation.partitions)
        messages += [fault] if fault else []
    if messages or any(map(is_dynamic, (operation.result, *operation.operands))):
        return messages  # sizes of dynamic dimensions are known only when the module runs
    try:
        if "output_to_operand_aliasing" in i.attributes:
            check_operand_aliases(operation)
        if i.opcode in RULES:
            RULES[i.opcode](operation)
    except Broken as broken:
        return [str(broken)]
    except NotJudged:
        pass
    return []
