"""Grammar of modules, computations and instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from .dtypes import ELEMENT_TYPES
from .errors import nearest
from .model import Computation, Instruction, Module
from .notations import COMPUTATION_KEYS, NOTATIONS
from .opcodes import OPCODES
from .read_attribute import read_list
from .read_header import read_stack_frames
from .read_literal import read_literal
from .read_shape import read_shape
from .scan import MAX_INLINE_DEPTH, NAME, SPACE, Scanner
from .shapes import Shape, without_layout
from .values import EMPTY, FrozenDict

_INSTRUCTION = re.compile(rf"{SPACE}(ROOT(?![\w.\-=:]){SPACE})?%?({NAME}){SPACE}={SPACE}", re.ASCII)
_OPCODE = re.compile(rf"{SPACE}([a-z][a-z0-9\-]*+){SPACE}\(", re.ASCII)
_OPERANDS = re.compile(rf"[ ]*+((?:%?{NAME}(?:, ?%?{NAME})*+)?)\)", re.ASCII)
_ATTRIBUTE = re.compile(rf"{SPACE},{SPACE}([A-Za-z_][\w\-]*+){SPACE}={SPACE}", re.ASCII)
_HEADER = re.compile(rf"{SPACE}HloModule(?![\w.\-])", re.ASCII)
_ENTRY = re.compile(rf"{SPACE}ENTRY(?![\w.\-])", re.ASCII)
_HAS_SHAPE = re.compile(rf"{SPACE}(?:\(|[a-z]\w*+{SPACE}\[|b\()", re.ASCII)
_MAY_BE_SHAPE = re.compile(rf"{_HAS_SHAPE.pattern}|{SPACE}(?:{'|'.join(ELEMENT_TYPES)})(?![\w.\-])", re.ASCII)
_MODULE_NAME = re.compile(rf"{SPACE}([A-Za-z_][\w.\-]*+)", re.ASCII)
# The text of an attribute whose value needs no rule to find its end; many are repeated, and are read once.
_SHORT_VALUE = re.compile(r"(?:\{[^{}\"\n]{0,80}\}|[\w%.\-]{1,80})(?=[,\n])", re.ASCII)


def read_module(text: str) -> Module:
    """The module that the text describes. Raises HloParseError."""
    s = Scanner(text)
    s.inline_computation = _read_inline_computation
    if s.match(_HEADER) is None:
        s.expected("'HloModule'", ("HloModule",))
    name = s.match(_MODULE_NAME)
    if name is None:
        s.expected("the module's name")
    attributes: dict[str, Any] = {}
    while m := s.match(_ATTRIBUTE):
        if m[1] in attributes:
            s.error(f"{m[1]!r} is given twice", m.start(1))
        notation = NOTATIONS.get(m[1])
        attributes[m[1]] = s.verbatim() if notation is None else notation.read(s)
    frames = read_stack_frames(s)
    computations = s.computations
    entry: str | None = None
    while s.skip() != len(text):
        start = s.pos
        is_entry = s.match(_ENTRY) is not None
        if is_entry and entry is not None:
            s.error(f"a module has one ENTRY; {entry!r} is one already", start)
        computation = _read_computation(s, is_entry)
        computations[computation.name] = computation
        entry = computation.name if is_entry else entry
    if not computations:
        s.expected("a computation")
    return Module(name[1], tuple(computations.values()), FrozenDict(attributes), frames)


def _read_computation(s: Scanner, is_entry: bool) -> Computation:
    start = s.skip()
    name = s.name("a computation: its name, then '{'" if not is_entry else "the name of the entry computation")
    if name in s.computations:
        s.error(f"there is already a computation {name!r}", start)
    signature = _read_signature(s) if s.accept("(") else None
    instructions = _read_instructions(s, f"the computation {name!r}")
    thread = "main"
    while m := s.match(_ATTRIBUTE):
        if m[1] != "execution_thread":
            s.error(f"a computation has no attribute {m[1]!r}", m.start(1))
        thread = s.string()
    computation = Computation(name, instructions, is_entry, thread)
    if signature is not None:
        _check_signature(s, computation, signature)
    return computation


def _read_instructions(s: Scanner, owner: str) -> tuple[Instruction, ...]:
    """``{ instruction ... }``; the last is the root where none is marked."""
    start = s.skip()
    s.expect("{", "to begin the instructions")
    names: dict[str, Instruction] = {}
    root: str | None = None
    while not s.accept("}"):
        instruction, at = _read_instruction(s, names)
        if instruction.name in names:
            s.error(f"there is already an instruction {instruction.name!r} in this computation", at)
        if instruction.is_root:
            if root is not None:
                s.error(f"a computation has one ROOT; {root!r} is one already", at)
            root = instruction.name
        names[instruction.name] = instruction
    if not names:
        s.error(f"{owner} has no instructions", start)
    instructions = tuple(names.values())
    return instructions if root is not None else (*instructions[:-1], replace(instructions[-1], is_root=True))


def _read_inline_computation(s: Scanner) -> str:
    """A computation that stands where its name would: read like the others, under a name that is free."""
    start = s.skip()
    s.depth += 1
    if s.depth > MAX_INLINE_DEPTH:
        s.error(f"computations are nested deeper than {MAX_INLINE_DEPTH} levels")
    instructions = _read_instructions(s, "this computation")
    s.depth -= 1
    n = s.inline_computations = s.inline_computations + 1
    name = "_" if n == 1 else f"_.{n - 1}"  # as XLA names it
    if name in s.computations:
        s.error(f"there is already a computation {name!r}", start)
    s.computations[name] = Computation(name, instructions)
    return name


@dataclass(frozen=True, slots=True)
class _Signature:
    """Shapes of a computation's parameters and result as its head gives them, with their places in the text."""

    parameters: tuple[tuple[Shape, int], ...]
    result: Shape
    result_at: int


def _read_signature(s: Scanner) -> _Signature:
    """``name: shape, ...) -> shape``."""
    parameters: list[tuple[Shape, int]] = []
    if not s.accept(")"):
        while True:
            s.name("a parameter's name")
            s.accept(":")
            at = s.skip()
            parameters.append((read_shape(s), at))
            if s.accept(")"):
                break
            s.expect(",", "or ')' after a parameter")
    s.expect("->", "and the result's shape after the parameters")
    at = s.skip()
    return _Signature(tuple(parameters), read_shape(s), at)


def _check_signature(s: Scanner, c: Computation, signature: _Signature) -> None:
    if without_layout(signature.result) != without_layout(c.root.shape):
        s.error(
            f"the root {c.root.name!r} is {without_layout(c.root.shape)}, not {signature.result}", signature.result_at
        )
    if len(signature.parameters) != len(c.parameters):
        s.error(f"{c.name!r} has {len(c.parameters)} parameters, not {len(signature.parameters)}", signature.result_at)
    for parameter, (shape, at) in zip(c.parameters, signature.parameters, strict=True):
        if without_layout(shape) != without_layout(parameter.shape):
            s.error(f"the parameter {parameter.name!r} is {without_layout(parameter.shape)}, not {shape}", at)


def _read_instruction(s: Scanner, names: dict[str, Instruction]) -> tuple[Instruction, int]:
    m = s.match(_INSTRUCTION)
    if m is None:
        found = s.name("an instruction (name = shape opcode(operands)) or '}'")
        s.expected("an instruction's name" if found == "ROOT" else f"'=' after the name {found!r}")
    is_root, name, name_at = m[1] is not None, m[2], m.start(2)
    if name == "ROOT" and s.text[name_at - 1] != "%":
        s.error("expected an instruction's name after 'ROOT'", m.end(2))
    if not _MAY_BE_SHAPE.match(s.text, s.pos):
        s.expected("the result's shape", ELEMENT_TYPES)
    shape = read_shape(s)
    m = s.match(_OPCODE)
    if m is None:
        s.expected("an opcode and '('", OPCODES)
    opcode = m[1]
    operands: tuple[str, ...] = ()
    literal = None
    number = None
    if opcode == "parameter":
        at = s.skip()
        number = s.integer("the parameter's number")
        if number < 0:
            s.error("a parameter's number cannot be negative", at)
        s.expect(")", "after the parameter's number")
    elif opcode == "constant":
        literal = read_literal(s, shape)
        s.expect(")", "after a constant's value")
    else:
        operands = _read_operands(s, names)
    attributes, metadata, predecessors = _read_attributes(s, names)
    return Instruction(
        name, opcode, shape, operands, attributes, literal, number, metadata, is_root, predecessors
    ), name_at


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
        at = s.skip()
        shape = read_shape(s) if _HAS_SHAPE.match(s.text, s.pos) else None
        name = _read_reference(s, names, "an operand")
        operands.append(name)
        if shape is not None and without_layout(shape) != without_layout(names[name].shape):
            s.error(f"the operand {name!r} is {without_layout(names[name].shape)}, not {shape}", at)
        if s.accept(")"):
            return tuple(operands)
        s.expect(",", "or ')' after an operand")


def _read_reference(s: Scanner, names: dict[str, Instruction], what: str) -> str:
    start = s.skip()
    name = s.name(what)
    if name not in names:
        s.error(f"no instruction {name!r} before this one in this computation", start, nearest(name, names))
    return names[name].name


def _read_attributes(
    s: Scanner, names: dict[str, Instruction]
) -> tuple[FrozenDict[str, Any], FrozenDict[str, Any], tuple[str, ...]]:
    found: dict[str, Any] = {}
    text, values = s.text, s.values
    while m := _ATTRIBUTE.match(text, s.pos):
        key = m[1]
        s.pos = start = m.end()
        if key in found:
            s.error(f"{key!r} is given twice", m.start(1))
        short = _SHORT_VALUE.match(text, start)
        if short is not None:
            known = values.get((key, short[0]))
            if known is not None:
                s.pos = short.end()
                found[key] = known
                continue
        if key == "control-predecessors":
            found[key] = read_list(s, lambda s: _read_reference(s, names, "an instruction"), "control predecessors")
            continue
        notation = NOTATIONS.get(key)
        value: Any = s.verbatim() if notation is None else notation.read(s)
        found[key] = value
        # A computation written in place is a new one each time it stands there.
        if short is not None and s.pos == short.end() and key not in COMPUTATION_KEYS:
            values[key, short[0]] = value
    if text.startswith(",", s.skip()):
        s.pos += 1
        s.expected("an attribute (key=value) after ','", NOTATIONS)
    if not found:
        return EMPTY, EMPTY, ()
    metadata = found.pop("metadata", EMPTY)
    predecessors = found.pop("control-predecessors", ())
    return FrozenDict(found) if found else EMPTY, metadata, predecessors
