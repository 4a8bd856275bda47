"""Sweeps that read across as C++: what lies apart along lanes and is next to each other along runs is loaded in
squares, which are turned in registers (``runtime/squares.h``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jax_stitch.emit.cpp_values import ctype
from jax_stitch.emit.lines import block, extent
from jax_stitch.indices.variables import PLACE, RUN
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element

if TYPE_CHECKING:
    from jax_stitch.emit.cpp_statements import Statements

_TYPES = frozenset({"f32", "f64", "s32", "s64", "u32", "u64"})
"""Those that lie in memory as they are computed with, in as many bytes as lanes of vectors are exchanged by."""


class _Across(Struct, frozen=True):
    """A name for an element, and how far those of neighbouring lanes are apart."""

    name: str
    element: Element
    stride: int


def square_lines(writer: Statements, s: st.Items) -> list[str]:
    """Return a sweep's text in squares, in which what can be turned is."""
    written = {t.array for t in _targets(s.body)}
    named = {d.name for d in s.body if isinstance(d, st.Define)}
    across = {id(d): found for d in s.body if (found := _across(d, written, s, named)) is not None}
    loads: list[str] = []
    body: list[str] = []
    for line in s.body:
        found = across.get(id(line))
        body += writer.lines([line])
        if found is not None:
            t, square = ctype(found.element.dtype), f"{found.name}_across_"
            loads.append(f"ST_ACROSS({t}, {square}, &{writer.values.cell(found.element)}, {found.stride})")
            body[-1] = f"const {t} {found.name} = ST_ACROSS_AT({square});"
    each = f"ST_EACH_SQUARE({extent(s.run, RUN)}, {extent(s.lane, PLACE)})"
    return block(each, [*loads, *block("ST_PLACES_OF_SQUARE", body)])


def _targets(body: st.Body) -> list[Element]:
    return [s.target for s in body if isinstance(s, st.Assign | st.Add) and isinstance(s.target, Element)]


def _across(s: st.Statement, written: set[str], items: st.Items, named: set[str]) -> _Across | None:
    """Return an element that every place of the sweep reads, if it lies so and the sweep does not write its array."""
    if not isinstance(s, st.Define) or not isinstance(s.value, Element):
        return None
    element = s.value
    if element.dtype not in _TYPES or s.dtype != element.dtype or element.vector or element.array in written:
        return None
    variables = {v.name: v for v in element.at.variables()}
    axes = items.run.variable, items.lane.variable
    if variables.keys() & named or not variables.keys() >= set(axes):
        return None
    along, stride = (element.at.stride_of(variables[name]) for name in axes)
    return _Across(s.name, element, stride) if along == 1 and stride is not None and abs(stride) > 1 else None
