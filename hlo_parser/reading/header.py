"""Grammar of what stands before a module's computations: the attributes of its own and the tables of stack frames."""

from __future__ import annotations

import re
from typing import Any

from ..attributes import Donor, EntryLayout
from ..model import FileLocation, StackFrame, StackFrames
from ..regex import regex
from ..shapes import Shape
from .attribute import read_ints, read_list
from .scan import DIGITS, SPACE, Scanner
from .shape import read_shape

_TABLE = regex(rf"{SPACE}(FileNames|FunctionNames|FileLocations|StackFrames)(?![\w.\-=(])", re.ASCII)
_NAME_ROW = regex(rf'\s*+({DIGITS}) "([^"\\\n]*+)"', re.ASCII)
_ROW = regex(rf"{SPACE}{DIGITS}{SPACE}\{{((?:{SPACE}(?:,{SPACE})?\w++={SPACE}-?{DIGITS})*+){SPACE}\}}", re.ASCII)
_FIELD = regex(rf"{SPACE}(?:,{SPACE})?(\w++)={SPACE}(-?{DIGITS})", re.ASCII)


def read_entry_layout(s: Scanner) -> EntryLayout:
    s.expect("{", "to begin the entry computation's layout")
    s.expect("(", "to begin the parameters' shapes")
    shapes: list[Shape] = []
    if not s.accept(")"):
        shapes.append(read_shape(s))
        while s.accept(",") and not (s.at(")") and not s.strict):
            shapes.append(read_shape(s))
        s.expect(")", "after the parameters' shapes")
    s.expect("->", "before the result's shape")
    result = read_shape(s)
    s.expect("}", "after the entry computation's layout")
    return EntryLayout(tuple(shapes), result)


def _donor(s: Scanner) -> Donor:
    s.expect("(", "to begin (parameter, index)")
    parameter = s.integer("a parameter number")
    s.expect(",", "after the parameter number")
    index = read_ints(s)
    s.expect(")", "after a buffer donor")
    return Donor(parameter, index)


def read_donors(s: Scanner) -> tuple[Donor, ...]:
    """Read ``{(parameter, {index}), ...}``."""
    return read_list(s, _donor, "a list of buffer donors", last_comma=True)


def read_stack_frames(s: Scanner) -> StackFrames | None:
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
