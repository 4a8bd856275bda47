"""Grammar of modules, computations and instructions."""

from __future__ import annotations

import re
from typing import Any

from .attributes import Donor, EntryLayout
from .errors import nearest
from .model import Computation, FileLocation, Instruction, Module, StackFrame, StackFrames
from .opcodes import OPCODES
from .read_attribute import READERS, read_aliases, read_ints, read_list
from .read_literal import read_literal
from .read_shape import read_shape
from .scan import NAME, SPACE, Scanner
from .shapes import Shape
from .values import EMPTY, FrozenDict

_INSTRUCTION = re.compile(rf"{SPACE}(ROOT(?![\w.\-=:]){SPACE})?%?({NAME}){SPACE}={SPACE}", re.ASCII)
_OPCODE = re.compile(rf"{SPACE}([a-z][a-z0-9\-]*+){SPACE}\(", re.ASCII)
_OPERANDS = re.compile(rf"[ ]*+((?:%?{NAME}(?:, ?%?{NAME})*+)?)\)", re.ASCII)
_ATTRIBUTE = re.compile(rf"{SPACE},{SPACE}([A-Za-z_][\w\-]*+){SPACE}={SPACE}", re.ASCII)
_HEADER = re.compile(rf"{SPACE}HloModule(?![\w.\-])", re.ASCII)
_ENTRY = re.compile(rf"{SPACE}ENTRY(?![\w.\-])", re.ASCII)
_HAS_SHAPE = re.compile(rf"{SPACE}(?:\(|[a-z]\w*+{SPACE}\[|b\()", re.ASCII)
_MODULE_NAME = re.compile(rf"{SPACE}([A-Za-z_][\w.\-]*+)", re.ASCII)
# The text of an attribute whose value needs no rule to find its end; many are repeated, and are read once.
_SHORT_VALUE = re.compile(r"(?:\{[^{}\"\n]{0,80}\}|[\w%.\-]{1,80})(?=[,\n])", re.ASCII)


def read_module(text: str) -> Module:
    """The module that the text describes. Raises HloParseError."""
    s = Scanner(text)
    if s.match(_HEADER) is None:
        s.expected("'HloModule'")
    name = s.match(_MODULE_NAME)
    if name is None:
        s.expected("the module's name")
    attributes: dict[str, Any] = {}
    while m := s.match(_ATTRIBUTE):
        if m[1] in attributes:
            s.error(f"{m[1]!r} is given twice", m.start(1))
        attributes[m[1]] = _MODULE_READERS.get(m[1], Scanner.verbatim)(s)
    frames = _read_stack_frames(s)
    computations: dict[str, Computation] = {}
    entry: str | None = None
    while s.skip() != len(text):
        start = s.pos
        is_entry = s.match(_ENTRY) is not None
        if is_entry and entry is not None:
            s.error(f"a module has one ENTRY; {entry!r} is one already", start)
        computation = _read_computation(s, is_entry, computations)
        computations[computation.name] = computation
        entry = computation.name if is_entry else entry
    if not computations:
        s.expected("a computation")
    return Module(name[1], tuple(computations.values()), FrozenDict(attributes), frames)


def _read_computation(s: Scanner, is_entry: bool, computations: dict[str, Computation]) -> Computation:
    start = s.skip()
    name = s.name("a computation: its name, then '{'" if not is_entry else "the name of the entry computation")
    if name in computations:
        s.error(f"there is already a computation {name!r}", start)
    result_at: int | None = None
    if s.accept("("):
        _read_parameters(s)
        s.expect("->", "and the result's shape after the parameters")
        result_at = s.skip()
        read_shape(s)
    s.expect("{", "to begin the instructions")
    names: dict[str, str] = {}
    instructions: list[Instruction] = []
    root: str | None = None
    while not s.accept("}"):
        instruction, at = _read_instruction(s, names, computations)
        if instruction.name in names:
            s.error(f"there is already an instruction {instruction.name!r} in this computation", at)
        if instruction.is_root:
            if root is not None:
                s.error(f"a computation has one ROOT; {root!r} is one already", at)
            root = instruction.name
        names[instruction.name] = instruction.name
        instructions.append(instruction)
    if not instructions:
        s.error(f"the computation {name!r} has no instructions", start)
    thread = "main"
    while m := s.match(_ATTRIBUTE):
        if m[1] != "execution_thread":
            s.error(f"a computation has no attribute {m[1]!r}", m.start(1))
        thread = s.string()
    if root is None:
        last = instructions[-1]
        instructions[-1] = _as_root(last)
    return Computation(name, tuple(instructions), is_entry, thread)


def _as_root(i: Instruction) -> Instruction:
    return Instruction(
        i.name,
        i.opcode,
        i.shape,
        i.operands,
        i.attributes,
        i.literal,
        i.parameter_number,
        i.metadata,
        True,
        i.control_predecessors,
    )


def _read_parameters(s: Scanner) -> None:
    """``name: shape, ...)``. The parameter instructions say the same, so nothing is kept."""
    if s.accept(")"):
        return
    while True:
        s.name("a parameter's name")
        s.accept(":")
        read_shape(s)
        if s.accept(")"):
            return
        s.expect(",", "or ')' after a parameter")


def _read_instruction(
    s: Scanner, names: dict[str, str], computations: dict[str, Computation]
) -> tuple[Instruction, int]:
    m = s.match(_INSTRUCTION)
    if m is None:
        s.expected("an instruction (name = shape opcode(operands)) or '}'")
    is_root, name, name_at = m[1] is not None, m[2], m.start(2)
    if not _HAS_SHAPE.match(s.text, s.pos):
        s.expected("the result's shape")
    shape = read_shape(s)
    m = s.match(_OPCODE)
    if m is None:
        s.expected("an opcode and '('", OPCODES)
    opcode = m[1]
    operands: tuple[str, ...] = ()
    literal = None
    number = None
    if opcode == "parameter":
        number = s.integer("the parameter's number")
        if number < 0:
            s.error("a parameter's number cannot be negative", s.pos)
        s.expect(")", "after the parameter's number")
    elif opcode == "constant":
        literal = read_literal(s, shape)
        s.expect(")", "after a constant's value")
    else:
        operands = _read_operands(s, names)
    attributes, metadata, predecessors = _read_attributes(s, names, computations)
    return Instruction(
        name, opcode, shape, operands, attributes, literal, number, metadata, is_root, predecessors
    ), name_at


def _read_operands(s: Scanner, names: dict[str, str]) -> tuple[str, ...]:
    m = s.match(_OPERANDS)
    if m is not None:
        if not m[1]:
            return ()
        try:
            # Names come from the table: equal names are one object.
            return tuple([names[o] for o in m[1].replace("%", "").replace(" ", "").split(",")])
        except KeyError:
            s.pos = m.start()
    operands: list[str] = []
    if s.accept(")"):
        return ()
    while True:
        if _HAS_SHAPE.match(s.text, s.pos):
            read_shape(s)  # the operand's own; its definition said it
        operands.append(_read_reference(s, names, "an operand"))
        if s.accept(")"):
            return tuple(operands)
        s.expect(",", "or ')' after an operand")


def _read_reference(s: Scanner, names: dict[str, str], what: str) -> str:
    start = s.skip()
    name = s.name(what)
    if name not in names:
        s.error(f"no instruction {name!r} before this one in this computation", start, nearest(name, names))
    return names[name]


def _read_attributes(
    s: Scanner, names: dict[str, str], computations: dict[str, Computation]
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
        value = found[key] = READERS.get(key, Scanner.verbatim)(s)
        if key in _REFERENCES:
            _check_computations(s, value, computations, start)
        elif key == "control-predecessors":
            for name in value:
                if name not in names:
                    s.error(f"no instruction {name!r} before this one in this computation", start)
            continue
        if short is not None and s.pos == short.end():
            values[key, short[0]] = value
    if not found:
        return EMPTY, EMPTY, ()
    metadata = found.pop("metadata", EMPTY)
    predecessors = found.pop("control-predecessors", ())
    return FrozenDict(found) if found else EMPTY, metadata, predecessors


_REFERENCES = frozenset(
    ("to_apply", "calls", "condition", "body", "true_computation", "false_computation", "select", "scatter")
    + ("branch_computations", "called_computations")
)


def _check_computations(
    s: Scanner, value: str | tuple[str, ...], computations: dict[str, Computation], start: int
) -> None:
    for name in (value,) if isinstance(value, str) else value:
        if name not in computations:
            s.error(f"no computation {name!r} before this one", start, nearest(name, computations))


def _read_entry_layout(s: Scanner) -> EntryLayout:
    s.expect("{", "to begin the entry computation's layout")
    s.expect("(", "to begin the parameters' shapes")
    shapes: list[Shape] = []
    if not s.accept(")"):
        shapes.append(read_shape(s))
        while s.accept(","):
            shapes.append(read_shape(s))
        s.expect(")", "after the parameters' shapes")
    s.expect("->", "before the result's shape")
    result = read_shape(s)
    s.expect("}", "after the entry computation's layout")
    return EntryLayout(tuple(shapes), result)


def _read_donor(s: Scanner) -> Donor:
    s.expect("(", "to begin (parameter, index)")
    parameter = s.integer("a parameter number")
    s.expect(",", "after the parameter number")
    index = read_ints(s)
    s.expect(")", "after a buffer donor")
    return Donor(parameter, index)


_MODULE_READERS: dict[str, Any] = {
    **{
        k: READERS[k]
        for k in ("is_scheduled", "alias_passthrough_params", "replica_count", "num_partitions", "frontend_attributes")
    },
    **{
        k: READERS[k]
        for k in ("allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output")
    },
    "input_output_alias": read_aliases,
    "buffer_donor": lambda s: read_list(s, _read_donor, "a list of buffer donors"),
    "entry_computation_layout": _read_entry_layout,
}


_TABLE = re.compile(rf"{SPACE}(FileNames|FunctionNames|FileLocations|StackFrames)(?![\w.\-=(])", re.ASCII)
_NAME_ROW = re.compile(r'\s*+(\d++) "([^"\\\n]*+)"', re.ASCII)
_ROW = re.compile(r"\s*+\d++\s*+\{((?:\s*+\w++=-?\d++)*+)\s*+\}", re.ASCII)
_FIELD = re.compile(r"(\w++)=(-?\d++)", re.ASCII)


def _read_stack_frames(s: Scanner) -> StackFrames | None:
    tables: dict[str, tuple[Any, ...]] = {}
    while m := s.match(_TABLE):
        rows: list[Any] = []
        while not _at_end_of_table(s):
            rows.append(_read_name_row(s) if m[1] in ("FileNames", "FunctionNames") else _read_row(s, m[1]))
        tables[m[1]] = tuple(rows)
    if not tables:
        return None
    return StackFrames(*(tables.get(t, ()) for t in ("FileNames", "FunctionNames", "FileLocations", "StackFrames")))


def _at_end_of_table(s: Scanner) -> bool:
    pos = s.skip()
    return not s.text[pos : pos + 1].isdigit()


def _read_name_row(s: Scanner) -> str:
    if m := s.match(_NAME_ROW):
        return m[2]
    s.integer()
    return s.string("a name in quotes")


def _read_row(s: Scanner, table: str) -> FileLocation | StackFrame:
    m = s.match(_ROW)
    if m is None:
        s.expected(f"a row of {table}: a number and {{field=number ...}}")
    try:
        fields = {f[1]: int(f[2]) for f in _FIELD.finditer(m[1])}
        if table == "FileLocations":
            return FileLocation(**fields)
        return StackFrame(fields.pop("file_location_id", 0), fields.pop("parent_frame_id", 1) - 1, **fields)
    except TypeError:
        wanted = FileLocation if table == "FileLocations" else StackFrame
        s.error(f"a row of {table} has the fields {', '.join(wanted.__slots__)}", m.start(1))
