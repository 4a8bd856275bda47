"""How often a loop of HLO runs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from hlo_parser import Computation, Instruction, Module

_SAME = frozenset({"copy", "bitcast", "convert", "reshape"})
"""Operations that hand a scalar integer on."""


class _Scalar(Struct, frozen=True):
    """An integer: ``offset``, plus the loop's carried value number ``carried`` if that is not None."""

    offset: int
    carried: int | None = None


def trip_count(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """Return the trips of a ``while`` of ``computation``, as XLA noted them or as its counter shows; None if that is
    not known.

    A counter is a carried integer that starts at a constant, grows by a constant and is compared with a constant.
    """
    config = loop.attributes.get("backend_config")
    if isinstance(config, Mapping) and "known_trip_count" in config:
        return int(config["known_trip_count"]["n"])
    condition = module.computation(loop.attributes["condition"])
    compare, compared = _comparison(module, condition)
    if compare is None or compared[0].carried is None or compared[1].carried is not None:
        return None
    index, limit = compared[0].carried, compared[1].offset - compared[0].offset
    start = _scalar(module, computation, _element(computation, loop.operands[0], index), {})
    body = module.computation(loop.attributes["body"])
    after = _scalar(module, body, _element(body, body.root.name, index), {})
    if start is None or start.carried is not None or after is None or after.carried != index or after.offset <= 0:
        return None
    inclusive = {"LT": 0, "LE": 1}.get(str(compare.attributes["direction"]))
    if inclusive is None:
        return None
    return max(0, -(-(limit + inclusive - start.offset) // after.offset))


def _comparison(module: Module, condition: Computation) -> tuple[Instruction | None, tuple[_Scalar, ...]]:
    """Return the comparison that a condition returns, possibly from a fusion, and its operands."""
    root, computation, bound = condition.root, condition, dict[int, _Scalar | None]()
    if root.opcode == "fusion":
        bound = {i: _scalar(module, condition, name, {}) for i, name in enumerate(root.operands)}
        computation = module.computation(root.attributes["calls"])
        root = computation.root
    if root.opcode != "compare":
        return None, ()
    operands = [_scalar(module, computation, name, bound) for name in root.operands]
    known = tuple(o for o in operands if o is not None)
    return (root, known) if len(known) == 2 else (None, ())


def _scalar(
    module: Module, computation: Computation, name: str | None, bound: Mapping[int, _Scalar | None]
) -> _Scalar | None:
    """Return what is known of a scalar; ``bound`` holds what is known of a fused computation's parameters."""
    if name is None:
        return None
    instruction = computation[name]
    match instruction.opcode:
        case "constant" if instruction.literal is not None and instruction.literal.to_numpy().dtype.kind in "iu":
            value = instruction.literal.to_numpy()
            return _Scalar(int(value)) if value.ndim == 0 else None
        case "parameter":
            return bound.get(instruction.parameter_number or 0)
        case "get-tuple-element" if computation[instruction.operands[0]].opcode == "parameter":
            return _Scalar(0, int(instruction.attributes["index"]))
        case opcode if opcode in _SAME:
            return _scalar(module, computation, instruction.operands[0], bound)
        case "add":
            left, right = (_scalar(module, computation, operand, bound) for operand in instruction.operands)
            if left is None or right is None or (left.carried is not None and right.carried is not None):
                return None
            return _Scalar(left.offset + right.offset, left.carried if left.carried is not None else right.carried)
        case "fusion":
            arguments = {
                i: _scalar(module, computation, operand, bound) for i, operand in enumerate(instruction.operands)
            }
            fused = module.computation(instruction.attributes["calls"])
            return _scalar(module, fused, fused.root.name, arguments)
        case _:
            return None


def _element(computation: Computation, name: str, index: int) -> str | None:
    """Return the name of a tuple's element; None if the tuple is not built in this computation."""
    made = computation[name]
    return made.operands[index] if made.opcode == "tuple" else None
