"""Which fusions of optimized HLO a known fault strikes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hlo_parser import ArrayShape, Computation, Instruction

_LEAST_RANK = 7
"""Dimensions of an array that YNNPACK sums wrongly: it has 8 in all, and uses some itself."""
_UPDATE = "dynamic-update-slice"
_SAME_ELEMENTS = frozenset({"bitcast", "reshape", "copy"})
_SHIFTING = frozenset({"slice", "dynamic-slice", "gather", "reverse", "transpose", "pad", "concatenate"})
"""Operations whose elements come from other positions of their operand."""


def _multiplies_and_reduces(fusion: Instruction, inside: Computation) -> bool:
    """Return whether YNNPACK computes a product and reduces it in one go."""
    return _is_of_ynnpack(fusion) and {"dot", "reduce"} <= {i.opcode for i in inside.instructions}


def _sums_high_ranks(fusion: Instruction, inside: Computation) -> bool:
    """Return whether YNNPACK sums products of many dimensions."""
    if not _is_of_ynnpack(fusion) or not any(i.opcode == "reduce" for i in inside.instructions):
        return False
    return any(i.opcode == "multiply" and _rank(i) >= _LEAST_RANK for i in inside.instructions)


def _shifts_in_place(fusion: Instruction, inside: Computation) -> bool:
    """Return whether a fusion writes an update into an array of another rank, and reads it from other places of that
    array. An update of one element reads all that it needs before it writes."""
    del fusion
    updates = (i for i in inside.instructions if i.opcode == _UPDATE and _size(i, 1, inside) > 1)
    return any(_reads_shifted(inside, update) for update in updates)


def _reads_shifted(inside: Computation, update: Instruction) -> bool:
    array, new, *_ = (inside[name] for name in update.operands)
    source = array
    while source.opcode in _SAME_ELEMENTS:
        source = inside[source.operands[0]]
    if source.opcode != "parameter" or _dims(source) == _dims(array):
        return False
    written = _place(inside, update)
    pending, seen = [(new, False)], set[tuple[str, bool]]()
    while pending:
        at, is_shifted = pending.pop()
        if at.name == source.name and is_shifted:
            return True
        if at.opcode in ("parameter", "constant") or (at.name, is_shifted) in seen:
            continue
        seen.add((at.name, is_shifted))
        shifts = at.opcode in _SHIFTING and _place(inside, at) != written
        pending += [(inside[o], is_shifted or shifts) for o in at.operands]
    return False


def _place(inside: Computation, instruction: Instruction) -> list[object]:
    """Return where a slice or an update begins, in the dimensions that have any length; of others, nothing."""
    dims = _dims(inside[instruction.operands[0]])
    if instruction.opcode == "slice":
        starts: list[object] = [start for start, _, _ in instruction.attributes["slice"]]
    elif instruction.opcode in ("dynamic-slice", _UPDATE):
        starts = [_start(inside[name]) for name in instruction.operands[-len(dims) :]]
    else:
        return []
    return [start for start, length in zip(starts, dims, strict=True) if length > 1]


def _start(index: Instruction) -> object:
    """Return a constant's value, or the name of what is none."""
    return int(index.literal.to_numpy()) if index.literal is not None else index.name


def _is_of_ynnpack(fusion: Instruction) -> bool:
    config = fusion.attributes.get("backend_config")
    kind = config.get("fusion_config", {}).get("kind", "") if isinstance(config, Mapping) else ""
    return str(kind).startswith("__ynn")


def _dims(instruction: Instruction) -> tuple[int, ...]:
    return tuple(instruction.shape.dims) if isinstance(instruction.shape, ArrayShape) else ()


def _rank(instruction: Instruction) -> int:
    return len(_dims(instruction))


def _size(instruction: Instruction, operand: int, inside: Computation) -> int:
    return math.prod(_dims(inside[instruction.operands[operand]]))


CONDITIONS: Mapping[str, Callable[[Instruction, Computation], bool]] = {
    "fused_product": _multiplies_and_reduces,
    "high_rank_sum": _sums_high_ranks,
    "shifted_update": _shifts_in_place,
}
"""By the name of the fault: whether it strikes a fusion with such a computation."""
