"""Applies the rules of operations to every instruction of a module."""

from __future__ import annotations

from ..attributes import EntryLayout
from ..model import Module
from ..requirements import ATTRIBUTES, LEAST_OPERANDS, OPERANDS
from ..shapes import Shape, without_layout
from . import collective_rules, computation_rules, data_rules, numeric_rules  # noqa: F401  (they register their rules)
from .fault import Fault
from .rules import RULES, Broken, NotJudged, Operation, is_dynamic, parameters, result


def operation_faults(module: Module) -> list[Fault]:
    """Faults of operands, attributes and shapes, of a module whose names resolve."""
    faults: list[Fault] = []
    computations = {c.name: c for c in module.computations}
    for c in module.computations:
        shapes: dict[str, Shape] = {}
        for i in c:
            operation = Operation(i, tuple(shapes[name] for name in i.operands), computations)
            shapes[i.name] = operation.result
            faults += [Fault(message, c.name, i.name) for message in _faults(operation)]
    layout = module.attributes.get("entry_computation_layout")
    if isinstance(layout, EntryLayout):
        if tuple(map(without_layout, layout.parameters)) != parameters(module.entry):
            faults.append(Fault("entry_computation_layout disagrees with the parameters", module.entry.name))
        if without_layout(layout.result) != result(module.entry):
            faults.append(Fault("entry_computation_layout disagrees with the root", module.entry.name))
    return faults


def _faults(operation: Operation) -> list[str]:
    i = operation.instruction
    n = len(operation.operands)
    messages = [f"{i.opcode} needs {key}=" for key in ATTRIBUTES.get(i.opcode, ()) if key not in i.attributes]
    if n != OPERANDS.get(i.opcode, n):
        messages.append(f"{i.opcode} has {OPERANDS[i.opcode]} operands, not {n}")
    elif n < LEAST_OPERANDS.get(i.opcode, 0):
        messages.append(f"{i.opcode} has at least {LEAST_OPERANDS[i.opcode]} operands, not {n}")
    if messages or i.opcode not in RULES or any(map(is_dynamic, (operation.result, *operation.operands))):
        return messages  # sizes of dynamic dimensions are known only when the module runs
    try:
        RULES[i.opcode](operation)
    except Broken as broken:
        return [str(broken)]
    except NotJudged:
        pass
    return []
