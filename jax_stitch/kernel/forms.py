"""The form of the text of each kind of node: its keyword, and how each of its fields is written."""

from __future__ import annotations

import re
from enum import Enum
from types import UnionType
from typing import Any, get_args

from msgspec import NODEFAULT, Struct

from jax_stitch.kernel import model, threads
from jax_stitch.kernel import statements as st


class Kind(Enum):
    """How a field is written."""

    INT = "int"
    BOOL = "bool"
    WORD = "str"
    NAMED = "one of an enumeration"
    AXIS = "Axis"
    INDEX = "Expr"
    VALUE = "Value"
    WORDS = "tuple[str, ...]"
    INTS = "tuple[int, ...]"
    INDICES = "tuple[Expr, ...]"
    VALUES = "tuple[Value, ...]"
    NODE = "a node"
    NODES = "nodes"


class FieldForm(Struct, frozen=True):
    """A field: its kind, and its default where it has one. Nodes stand in braces after the rest."""

    name: str
    kind: Kind
    default: Any
    enum: type[Enum] | None = None

    @property
    def is_inside(self) -> bool:
        return self.kind in (Kind.NODE, Kind.NODES)


_KINDS = {
    "int": Kind.INT,
    "int | None": Kind.INT,
    "bool": Kind.BOOL,
    "str": Kind.WORD,
    "Axis": Kind.AXIS,
    "Expr": Kind.INDEX,
    "Value": Kind.VALUE,
    "Value | None": Kind.VALUE,
    "Element": Kind.VALUE,
    "Ref | Element": Kind.VALUE,
    "Assign": Kind.VALUE,
    "Tests": Kind.VALUE,
    "Literal | None": Kind.VALUE,
    "tuple[str, ...]": Kind.WORDS,
    "tuple[int, ...]": Kind.INTS,
    "tuple[Expr, ...]": Kind.INDICES,
    "tuple[Value, ...]": Kind.VALUES,
    "tuple[Literal, ...]": Kind.VALUES,
    "Joins | None": Kind.NODE,
    "RowShape | TeamShape": Kind.NODE,
    "Launch": Kind.NODE,
}
_ENUMS: dict[str, type[Enum]] = {"Reach": threads.Reach, "Space": threads.Space, "Who | None": threads.Who}


def _form(name: str, annotation: str, default: Any) -> FieldForm:
    if annotation in _ENUMS:
        return FieldForm(name, Kind.NAMED, default, _ENUMS[annotation])
    return FieldForm(name, _KINDS.get(annotation, Kind.NODES), default)


def forms(kind: type[Any]) -> tuple[FieldForm, ...]:
    """Return the fields of a kind of node, in the order in which they are written: first those of its line."""
    if kind not in _FORMS:
        names, defaults = kind.__struct_fields__, kind.__struct_defaults__
        every = (NODEFAULT,) * (len(names) - len(defaults)) + defaults
        unordered = [
            _form(name, kind.__annotations__[name], default) for name, default in zip(names, every, strict=True)
        ]
        _FORMS[kind] = tuple(sorted(unordered, key=lambda f: f.is_inside))
    return _FORMS[kind]


_FORMS: dict[type[Any], tuple[FieldForm, ...]] = {}


def names_inside(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of a kind of node that hold nodes."""
    if kind not in _INSIDE:
        _INSIDE[kind] = tuple(f.name for f in forms(kind) if f.is_inside)
    return _INSIDE[kind]


_INSIDE: dict[type[Any], tuple[str, ...]] = {}


def axes_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of a kind of node that are loop variables."""
    if kind not in _AXES:
        _AXES[kind] = tuple(f.name for f in forms(kind) if f.kind is Kind.AXIS)
    return _AXES[kind]


_AXES: dict[type[Any], tuple[str, ...]] = {}


def required(form: FieldForm) -> bool:
    return form.default is NODEFAULT


def keyword(kind: type[Any]) -> str:
    """Return the keyword of a kind of node: ``row_value`` for ``RowValue``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def _kinds() -> tuple[type[Any], ...]:
    assert isinstance(st.Statement, UnionType)
    of_passes = (st.Stretch, st.Prefetch, st.Joins, st.JoinStep, st.Scan, st.ScanStep, st.Case)
    inner = (*of_passes, st.Inside, st.Square, st.Sum, st.Steps)
    parts = (model.Combiner, model.Comparator, model.Table, model.Parameter, model.RowShape, model.TeamShape)
    whole = (model.Part, model.Call, model.Phase, model.Buffer, model.Launch, model.Kernel)
    return (*get_args(st.Statement), *inner, *parts, *whole)


KINDS = {keyword(kind): kind for kind in _kinds()}
