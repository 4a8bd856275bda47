"""The meaning of names as one goes through a kernel: types of declarations, and ranges of loops' variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from jax_stitch.ir.indices.variables import BATCH, ROW
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import INDEX, Op, Start, Value, type_of
from jax_stitch.kernel.forms import axes_of, forms
from jax_stitch.kernel.intrinsics import defined
from jax_stitch.kernel.literals import computed

Range = tuple[int, int]


class Context(Struct):
    """The names known so far. Those that end stay known: nothing refers to them."""

    types: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    fields: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The types of the fields of combiners' and comparators' values."""

    def enter(self, kind: type[Any], values: Mapping[str, Any]) -> None:
        """Take in what a node of a kind declares, from its fields; before what is inside it."""
        self.ranges |= bound(kind, values)
        if kind in (model.Combiner, model.Comparator):
            name = values["name"]
            self.fields[name] = tuple(values["dtypes"])
            is_single = kind is model.Combiner and len(values["dtypes"]) == 1
            self.types["a"] = self.types["b"] = computed(values["dtypes"][0]) if is_single else name
        elif kind is st.Scan:
            self.types[values["name"]] = self.value_type(values["combiner"])
        elif kind is st.Apply:
            for name in defined(values["intrinsic"], values["cells"]):
                self.types[name] = self.value_type(values["function"])
        elif kind in _DECLARATIONS:
            self.types[values["name"]] = self.value_type(values["dtype"])
            if kind is st.Allocate and values["copies"] > 1:
                self.types[f"next_{values['name']}"] = values["dtype"]
        if kind is st.Define and isinstance(values["value"], Start):
            self.ranges[values["name"]] = (0, values["value"].high)

    def value_type(self, dtype: str) -> str:
        """Return the type of a value of a type: of a combiner with one field that field's, as it is computed."""
        fields = self.fields.get(dtype, ())
        return computed(fields[0]) if len(fields) == 1 else dtype

    def field_type(self, of: Value, k: int) -> str:
        """Return the type of a field, as a value holds it."""
        fields = self.fields.get(type_of(of), ())
        return computed(fields[k]) if k < len(fields) else INDEX


_DECLARATIONS = {
    *(st.Define, st.Allocate, st.Sum, st.Square, model.Parameter, model.Table),
}


def _of_rows(v: Mapping[str, Any]) -> dict[str, Range]:
    return {ROW: (0, v["period"] - 1), BATCH: (0, v["rows"] // v["period"] - 1)}


def _of_for(v: Mapping[str, Any]) -> dict[str, Range]:
    return {v["variable"]: (v["start"].low, min(stop.high for stop in v["stops"]) - 1)} if v["stops"] else {}


_RANGES: dict[type[Any], Callable[[Mapping[str, Any]], dict[str, Range]]] = {
    model.RowShape: _of_rows,
    model.TeamShape: lambda v: {ROW: (0, v["rows"] - 1)},
    st.For: _of_for,
    st.Inside: lambda v: {v["name"]: (0, v["high"])},
}


def bound(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Range]:
    """Return the ranges of the variables that a node of a kind binds, by its fields."""
    if kind in _RANGES:
        return _RANGES[kind](values)
    axes = (values[name] for name in axes_of(kind))
    return {axis.variable: (0, axis.extent - 1) for axis in axes}


def bound_by(node: Any) -> dict[str, Range]:
    """Return the ranges of the variables that a node binds; a loop without an end of its own has none."""
    kind = type(node)
    names = (f.name for f in forms(kind)) if kind in _RANGES else axes_of(kind)
    return bound(kind, {name: getattr(node, name) for name in names})


def declares(kind: type[Any]) -> bool:
    """Return whether nodes of a kind declare a name or bind a variable."""
    return kind in _DECLARING or bool(axes_of(kind))


_OTHERS = {model.Combiner, model.Comparator, st.Scan, st.Apply}
_DECLARING = frozenset({*_DECLARATIONS, *_RANGES, *_OTHERS})


def usual_type(op: Op) -> str:
    """Return the type that most operations have: that of the last operand."""
    return type_of(op.operands[-1]) if op.operands else ""
