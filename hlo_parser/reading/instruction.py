"""Grammar of instructions: ``name = shape opcode(operands), attributes``, and what XLA reads besides.

Outside strict mode the shape may be missing where it follows from the operands, an operand may be an instruction
itself, and names may end in a colon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..dtypes import ELEMENT_TYPES
from ..errors import nearest
from ..literals import Literal
from ..model import Instruction
from ..notations import COMPUTATION_KEYS, NOTATIONS
from ..opcodes import OPCODES, asynchronous
from ..regex import regex
from ..requirements import ATTRIBUTES, OPERANDS
from ..shapes import ArrayShape, Shape, TokenShape, TupleShape, compatible
from ..values import EMPTY, FrozenDict
from .attribute import read_list
from .checks import CHECKS
from .literal import read_literal
from .scan import MAX_DEPTH, NAME, RESERVED, SPACE, Scanner
from .shape import read_shape

_INSTRUCTION = regex(rf"{SPACE}(ROOT(?![\w.\-=:]){SPACE})?%?({NAME}){SPACE}={SPACE}", re.ASCII)
_LABELLED = regex(rf"{SPACE}(ROOT(?![\w.\-=:]){SPACE})?({NAME}):{SPACE}={SPACE}", re.ASCII)
_OPCODE = regex(rf"{SPACE}([a-z][a-z0-9\-]*+){SPACE}\(", re.ASCII)
_OPERANDS = regex(rf"[ ]*+((?:%?{NAME}(?:, ?%?{NAME})*+)?)\)", re.ASCII)
_ONE_OPERAND = regex(rf"{SPACE}%?({NAME}){SPACE}([,)])", re.ASCII)
_ATTRIBUTE = regex(rf"{SPACE},{SPACE}([A-Za-z_][\w\-]*+)={SPACE}", re.ASCII)
_HAS_SHAPE = regex(rf"{SPACE}(?:\(|[a-z]\w*+{SPACE}\[|b\()", re.ASCII)
_MAY_BE_SHAPE = regex(rf"{_HAS_SHAPE.pattern}|{SPACE}(?:{'|'.join(ELEMENT_TYPES)})(?![\w.\-])", re.ASCII)
# The text of an attribute whose value needs no rule to find its end; many are repeated, and are read once.
_SHORT_VALUE = regex(r"(?:\{[^{}\"\n]{0,80}\}|[\w%.\-]{1,80})(?=[,\n])", re.ASCII)

_Attributes = tuple[FrozenDict[str, Any], FrozenDict[str, Any], tuple[str, ...]]


def read_instruction(s: Scanner, names: dict[str, Instruction]) -> tuple[Instruction, int]:
    """Return an instruction, and where its name stands. ``names`` are those before it; it is not put among them."""
    m = s.match(_INSTRUCTION)
    if m is None and not s.strict:
        m = s.match(_LABELLED)
    if m is None:
        written = s.name("an instruction (name = shape opcode(operands)) or '}'")
        s.expected("an instruction's name" if written == "ROOT" else f"'=' after the name {written!r}")
    name, name_at = m[2], m.start(2)
    if name in RESERVED and s.text[name_at - 1] != "%":
        if name == "ROOT":
            s.error("expected an instruction's name after 'ROOT'", m.end(2))
        s.error(f"{name!r} means something else here: write %{name}", name_at)
    return read_right_side(s, names, name, m[1] is not None), name_at


def read_right_side(
    s: Scanner, names: dict[str, Instruction], name: str, is_root: bool, nested: bool = False
) -> Instruction:
    """Read ``shape opcode(operands), attributes``; a nested instruction has no attributes."""
    shape = _read_result_shape(s)
    m = s.match(_OPCODE)
    if m is None:
        s.expected("an opcode and '('", OPCODES)
    opcode, at = m[1], m.start(1)
    if shape is None:
        _check_inferable(s, opcode, at)
    operands: tuple[str, ...] = ()
    literal: Literal | None = None
    number: int | None = None
    if opcode == "parameter":
        number = _read_parameter_number(s)
    elif opcode == "constant":
        assert shape is not None
        literal = read_literal(s, shape)
        s.expect(")", "after a constant's value")
    else:
        operands = _read_operands(s, names)
        if len(operands) != OPERANDS.get(opcode, len(operands)):
            s.error(f"{opcode} has {OPERANDS[opcode]} operands, not {len(operands)}", at)
    attributes, metadata, predecessors = (EMPTY, EMPTY, ()) if nested else _read_attributes(s, names)
    for key in ATTRIBUTES.get(opcode, ()):
        if key not in attributes:
            where = "; only an instruction with a name of its own can have attributes" if nested else ""
            s.error(f"{opcode} needs {key}={where}", at)
    if shape is None:
        shape = _infer(s, opcode, tuple([names[o].shape for o in operands]), attributes, at)
    elif opcode in _GIVEN_SHAPES:
        shape = _given_shape(opcode, shape, [names[o].shape for o in operands])
    if opcode in CHECKS:
        wrong = CHECKS[opcode](shape, [names[o].shape for o in operands], attributes)
        if wrong:
            s.error(wrong, at)
    elif opcode == "async-done" and names[operands[0]].opcode.rpartition("-")[2] not in ("start", "update"):
        s.error(f"the operand of an {opcode} is an async-start or -update, not a {names[operands[0]].opcode}", at)
    return Instruction(name, opcode, shape, operands, attributes, literal, number, metadata, is_root, predecessors)


def _read_result_shape(s: Scanner) -> Shape | None:
    """Return the shape before the opcode, or None where there is none and none is needed."""
    if _MAY_BE_SHAPE.match(s.text, s.pos):
        return read_shape(s)
    m = None if s.strict else _OPCODE.match(s.text, s.pos)
    return None if m is not None else s.expected("the result's shape", ELEMENT_TYPES)


def _read_parameter_number(s: Scanner) -> int:
    at = s.skip()
    number = s.integer("the parameter's number")
    if number < 0:
        s.error("a parameter's number cannot be negative", at)
    s.expect(")", "after the parameter's number")
    return number


def _check_inferable(s: Scanner, opcode: str, at: int) -> None:
    from hlo_parser.infer import INFERABLE

    if opcode not in OPCODES and asynchronous(opcode) is None:
        s.error(f"expected the result's shape or an opcode, found {opcode!r}", at, nearest(opcode, OPCODES))
    if opcode not in INFERABLE:
        s.error(f"the shape of a {opcode} does not follow from its operands: write it before the opcode", at)


def _infer(s: Scanner, opcode: str, operands: tuple[Shape, ...], attributes: Mapping[str, Any], at: int) -> Shape:
    from hlo_parser.infer import CannotInfer, infer_shape

    try:
        return infer_shape(opcode, operands, attributes, s.computations)
    except CannotInfer as reason:
        s.error(f"cannot infer the shape of this {opcode}: {reason}", at)


_TOKEN = TokenShape()
_U32 = ArrayShape("u32", ())
_GIVEN_SHAPES = frozenset(
    ("add-dependency", "after-all", "infeed", "outfeed", "recv", "recv-done", "send", "send-done")
)


def _given_shape(opcode: str, shape: Shape, operands: list[Shape]) -> Shape:
    """Return the shape of an operation that XLA gives one itself, whatever (but for its layouts) is written before
    it.
    """
    parts = shape.elements if isinstance(shape, TupleShape) else ()
    operand = operands[0] if operands else None
    match opcode:
        case "after-all" | "outfeed" | "send-done":
            made: Shape = _TOKEN
        case "add-dependency" if operand is not None:
            made = operand
        case "infeed" if parts:
            made = TupleShape((parts[0], _TOKEN))
        case "send" if operand is not None:
            made = TupleShape((operand, _U32, _TOKEN))
        case "recv" if parts:
            made = TupleShape((parts[0], _U32, _TOKEN))
        case "recv-done" if isinstance(operand, TupleShape) and operand.elements:
            made = TupleShape((operand.elements[0], _TOKEN))
        case _:
            return shape
    return shape if compatible(shape, made) else made


def _read_operands(s: Scanner, names: dict[str, Instruction]) -> tuple[str, ...]:
    m = s.match(_OPERANDS)
    if m is not None:
        if not m[1]:
            return ()
        try:
            # Names come from the table: equal names are one object.
            return tuple([names[o].name for o in m[1].replace("%", "").replace(" ", "").split(",")])
        except KeyError:
            s.pos = m.start()
    operands: list[str] = []
    if s.accept(")"):
        return ()
    while True:
        m = _ONE_OPERAND.match(s.text, s.pos)
        if m is not None and m[1] in names:
            operands.append(names[m[1]].name)
            s.pos = m.end()
            if m[2] == ")":
                return tuple(operands)
            continue
        while not s.strict and s.accept(","):
            pass  # XLA reads on where an operand is missing
        if not s.strict and s.accept(")"):
            return tuple(operands)
        operands.append(_read_operand(s, names))
        if s.accept(")"):
            return tuple(operands)
        s.expect(",", "or ')' after an operand")


def _read_operand(s: Scanner, names: dict[str, Instruction]) -> str:
    """Return a name, perhaps with its shape before it; or an instruction, which gets a name."""
    at = s.skip()
    shape = read_shape(s) if _HAS_SHAPE.match(s.text, s.pos) else None
    if not s.strict and _OPCODE.match(s.text, s.pos):
        if s.missing_operand is not None and shape is not None:
            s.missing_operand(s, names, shape)  # XLA takes the opcode for an operand first
        s.pos = at
        return _read_nested(s, names)
    made = s.missing_operand(s, names, shape) if s.missing_operand is not None and shape is not None else None
    if made is not None:
        return made
    name = _read_reference(s, names, "an operand")
    if shape is not None and not compatible(shape, names[name].shape):
        s.error(f"the operand {name!r} is {names[name].shape}, not {shape}", at)
    return name


def _read_nested(s: Scanner, names: dict[str, Instruction]) -> str:
    """Return an instruction in the place of an operand."""
    s.nested += 1
    if s.nested > MAX_DEPTH:
        s.error(f"instructions are nested deeper than {MAX_DEPTH} levels")
    instruction = read_right_side(s, names, "", False, nested=True)
    s.nested -= 1
    name = f"{instruction.opcode}.anon"  # as XLA names it
    number = s.anonymous.get(name, 0)
    while (unique := f"{name}.{number}" if number else name) in names:
        number += 1
    s.anonymous[name] = number + 1
    names[unique] = replace(instruction, name=unique)
    return unique


def _read_reference(s: Scanner, names: dict[str, Instruction], what: str) -> str:
    start = s.skip()
    name = s.name(what)
    if name not in names:
        s.error(f"no instruction {name!r} before this one in this computation", start, nearest(name, names))
    return names[name].name


def _read_attributes(
    s: Scanner, names: dict[str, Instruction]
) -> tuple[FrozenDict[str, Any], FrozenDict[str, Any], tuple[str, ...]]:
    attributes: dict[str, Any] = {}
    text, values = s.text, s.values
    while m := _ATTRIBUTE.match(text, s.pos):
        key = m[1]
        s.pos = start = m.end()
        if key in attributes:
            s.error(f"{key!r} is given twice", m.start(1))
        short = _SHORT_VALUE.match(text, start)
        if short is not None:
            known = values.get((key, short[0]))
            if known is not None:
                s.pos = short.end()
                attributes[key] = known
                continue
        if key == "control-predecessors":
            attributes[key] = read_list(
                s, lambda s: _read_reference(s, names, "an instruction"), "control predecessors"
            )
            continue
        notation = NOTATIONS.get(key)
        value: Any = s.verbatim() if notation is None else notation.read(s)
        attributes[key] = value
        # A computation written in place is a new one each time it stands there.
        if short is not None and s.pos == short.end() and key not in COMPUTATION_KEYS:
            values[key, short[0]] = value
    if text.startswith(",", s.skip()):
        s.pos += 1
        s.expected("an attribute (key=value) after ','", NOTATIONS)
    if not attributes:
        return EMPTY, EMPTY, ()
    metadata = attributes.pop("metadata", EMPTY)
    predecessors = attributes.pop("control-predecessors", ())
    return FrozenDict(attributes) if attributes else EMPTY, metadata, predecessors
