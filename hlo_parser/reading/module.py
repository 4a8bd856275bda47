"""Grammar of modules, computations and instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ..attributes import EntryLayout
from ..model import Computation, Instruction, Module
from ..notations import NOTATIONS
from ..opcodes import is_known
from ..regex import regex
from ..shapes import Shape, compatible, part, with_default_layout, without_layout
from ..values import FrozenDict
from .header import read_stack_frames
from .instruction import read_instruction, read_right_side
from .scan import MAX_INLINE_DEPTH, NAME, SPACE, Scanner
from .shape import read_shape

_ATTRIBUTE = regex(rf"{SPACE},{SPACE}([A-Za-z_][\w\-]*+)={SPACE}", re.ASCII)
_HEADER = regex(rf"{SPACE}HloModule(?![\w.\-])", re.ASCII)
_ENTRY = regex(rf"{SPACE}ENTRY(?![\w.\-])", re.ASCII)
_BODY = regex(rf"{SPACE}%?{NAME}:?{SPACE}\{{", re.ASCII)
_SIGNATURE = regex(rf"{SPACE}%?{NAME}{SPACE}\([^()]*+\){SPACE}->", re.ASCII)
_ASSIGNMENT = regex(rf"{SPACE}(?:ROOT(?![\w.\-=:]){SPACE})?(?:%{NAME}|{NAME}:?){SPACE}=", re.ASCII)
_SHAPED = regex(rf"{SPACE}(?:\(|[a-z]\w*+{SPACE}\[|b\()", re.ASCII)


def read_module(text: str, *, strict: bool = False) -> Module:
    """Return the module that the text describes. Raises HloParseError.

    Read is what XLA reads: a module, also without its header line, or a single instruction. With ``strict`` only what
    XLA prints is: a module with a header, each instruction with its shape and a line to itself.
    """
    return _read_any(_scanner(text, strict))


def read_modules(text: str, *, strict: bool = False) -> tuple[Module, ...]:
    """Return the modules of a text in which each after the first begins with ``HloModule``. Raises HloParseError."""
    s = _scanner(text, strict)
    s.several = True
    modules = [_read_any(s)]
    while s.skip() != len(text):
        s.computations, s.anonymous, s.inline_computations = {}, {}, 0
        s.values = {}  # some name computations
        modules.append(_read_any(s))
    return tuple(modules)


def _scanner(text: str, strict: bool) -> Scanner:
    s = Scanner(text, strict)
    s.inline_computation = _read_inline_computation
    return s


def _read_any(s: Scanner) -> Module:
    if s.match(_HEADER) is not None:
        return _read_whole_module(s)
    if s.strict:
        s.expected("'HloModule'", ("HloModule",))
    if _ENTRY.match(s.text) or _BODY.match(s.text):
        computations = _read_computations(s)
        module = Module("", tuple(computations.values()))
        return replace(module, name=f"module_{module.entry.name}")
    if _SIGNATURE.match(s.text):
        s.error("the text does not begin with 'HloModule': write a line 'HloModule name' above it")
    if _ASSIGNMENT.match(s.text) or _SHAPED.match(s.text):
        return _read_single_instruction(s)
    s.expected("'HloModule'", ("HloModule",))


def _read_whole_module(s: Scanner) -> Module:
    """Read what follows the word HloModule."""
    name = s.name("the module's name")
    attributes: dict[str, Any] = {}
    places: dict[str, int] = {}
    while m := s.match(_ATTRIBUTE):
        if m[1] in attributes:
            s.error(f"{m[1]!r} is given twice", m.start(1))
        notation = NOTATIONS.get(m[1])
        attributes[m[1]] = s.verbatim() if notation is None else notation.read(s)
        places[m[1]] = m.start(1)
    frames = read_stack_frames(s)
    computations = _read_computations(s)
    module = Module(name, tuple(computations.values()), FrozenDict(attributes), frames)
    result = module.entry.root.shape
    for alias in attributes.get("input_output_alias", ()):
        if part(result, alias.output_index) is None:
            s.error(f"the result {result} has no part {alias.output_index}", places["input_output_alias"])
    return module


def _read_computations(s: Scanner) -> dict[str, Computation]:
    computations = s.computations
    entry: str | None = None
    while s.skip() != len(s.text):
        if s.several and computations and _HEADER.match(s.text, s.pos):
            break
        start = s.pos
        is_entry = s.match(_ENTRY) is not None
        if is_entry and entry is not None:
            s.error(f"a module has one ENTRY; {entry!r} is one already", start)
        computation = _read_computation(s, is_entry)
        computations[computation.name] = computation
        entry = computation.name if is_entry else entry
    if not computations:
        s.expected("a computation")
    return computations


def _read_single_instruction(s: Scanner) -> Module:
    """Return an instruction alone: each operand that comes with a shape becomes a parameter of a module around it."""
    names: dict[str, Instruction] = {}
    parameters: list[Instruction] = []

    def parameter(s: Scanner, names: dict[str, Instruction], shape: Shape) -> str | None:
        """Return the name of an operand of that shape, made where it is not known; none may follow the shape."""
        at = s.skip()
        name = f"_{len(parameters)}" if s.at(",") or s.at(")") else s.name("an operand")
        if name in names:
            s.pos = at
            return None
        names[name] = Instruction(name, "parameter", shape, parameter_number=len(parameters))
        parameters.append(names[name])
        return name

    s.missing_operand = parameter
    s.inline_computations = 1  # the module's own has the first name
    if _SHAPED.match(s.text):
        at = s.skip()
        instruction = read_right_side(s, names, "_", False)
    else:
        instruction, at = read_instruction(s, names)
    if instruction.name in names:
        s.error(f"there is already an instruction {instruction.name!r}", at)
    if not is_known(instruction.opcode):
        s.error("expected 'HloModule', or one instruction", at)
    if s.skip() != len(s.text):
        s.error("expected the end of the text after a single instruction")
    entry = Computation("_", (*names.values(), replace(instruction, is_root=True)), is_entry=True)
    shapes = [with_default_layout(i.shape) for i in (*parameters, instruction)]
    layout = EntryLayout(tuple(shapes[:-1]), shapes[-1])
    attributes = FrozenDict({"is_scheduled": True, "entry_computation_layout": layout})
    return Module("_", (*s.computations.values(), entry), attributes)


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
    """Read ``{ instruction ... }``; the last is the root if none is marked."""
    start = s.skip()
    s.expect("{", "to begin the instructions")
    names: dict[str, Instruction] = {}
    root: str | None = None
    while not s.accept("}"):
        instruction, at = read_instruction(s, names)
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
    """Return a computation that stands where its name would: read like the others, under a name that is free."""
    start = s.skip()
    s.depth += 1
    if s.depth > MAX_INLINE_DEPTH:
        s.error(f"computations are nested deeper than {MAX_INLINE_DEPTH} levels")
    missing, s.missing_operand = s.missing_operand, None
    instructions = _read_instructions(s, "this computation")
    s.missing_operand = missing
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
    """Read ``name: shape, ...) -> shape``."""
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
    if not compatible(signature.result, c.root.shape):
        s.error(
            f"the root {c.root.name!r} is {without_layout(c.root.shape)}, not {signature.result}", signature.result_at
        )
    if not s.strict:  # XLA reads the parameters' shapes here and forgets them
        return
    if len(signature.parameters) != len(c.parameters):
        s.error(f"{c.name!r} has {len(c.parameters)} parameters, not {len(signature.parameters)}", signature.result_at)
    for parameter, (shape, at) in zip(c.parameters, signature.parameters, strict=True):
        if not compatible(shape, parameter.shape):
            s.error(f"the parameter {parameter.name!r} is {without_layout(parameter.shape)}, not {shape}", at)
