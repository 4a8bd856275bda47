"""Expressions of the kernel language: what a thread computes, without effects.

A type is an HLO element type, ``index``, or the name of a combiner, for that combiner's values. Values of sub-word
floats are held in ``f32``, rounded to their own type; a cell (an accumulator, a cached one) of such values is ``f32``.

Where an element stands is an ``analysis.Expr`` over the variables in scope: the row, the place, counters of loops, and
names of type ``index``.
"""

from __future__ import annotations

from msgspec import Struct

from jax_stitch.ir.indices.expr import Expr

INDEX = "index"
"""The type of what indices are computed from."""

Attributes = tuple[tuple[str, str | int], ...]

EXACT = "exact"
"""The attribute of a comparison, or an extremum, of floats whose subnormals count: those of bf16."""


class Literal(Struct, frozen=True):
    """A constant: the bits of its value, in the type that it is computed in."""

    dtype: str
    bits: int


class Ref(Struct, frozen=True):
    """What a name stands for, as its declaration says: a value, the thread's accumulator, its row's value, or what it
    caches at its own place.
    """

    name: str
    dtype: str


class Field(Struct, frozen=True):
    """One of the values that a combiner's value is made of."""

    of: Value
    field: int
    dtype: str


class Element(Struct, frozen=True):
    """An element of an array: a buffer, a table, or an array in shared memory. Of an array that each row has for
    itself ``at`` counts inside the row.
    """

    array: str
    at: Expr
    dtype: str
    vector: str = ""
    """The name under which it is read or written together with its neighbours, where a pass goes in vectors."""
    hidden: int = 0
    """The stride along lanes that is a variable in the text (``lane_strides.py``); 0 for none."""


class IndexValue(Struct, frozen=True):
    """An index as a value. ``narrow`` where the type holds it, whatever that of indices is."""

    at: Expr
    dtype: str
    narrow: bool = False


class Counter(Struct, frozen=True):
    """``start + by * variable``: in arithmetic of ``dtype``, or of indices."""

    variable: str
    start: int
    by: int
    dtype: str
    in_indices: bool = False


class Op(Struct, frozen=True):
    """One HLO operation on one element, result and operands rounded to their types."""

    opcode: str
    dtype: str
    operands: tuple[Value, ...]
    attributes: Attributes = ()


class Combine(Struct, frozen=True):
    """A combiner applied to two of its values."""

    combiner: str
    left: Value
    right: Value


class Make(Struct, frozen=True):
    """A combiner's value made of one of each of its fields."""

    combiner: str
    operands: tuple[Value, ...]


class Products(Struct, frozen=True):
    """The sum of products of pairs, in order; zero where there are none."""

    dtype: str
    pairs: tuple[tuple[Value, Value], ...]


class Fused(Struct, frozen=True):
    """``left * right + addend`` in one rounding of ``dtype``."""

    dtype: str
    left: Value
    right: Value
    addend: Value


class Pick(Struct, frozen=True):
    """The one of several values that the index ``at`` says, counted from ``low``."""

    at: Expr
    low: int
    choices: tuple[Value, ...]
    dtype: str


class Start(Struct, frozen=True):
    """Data as an index, clamped to [0, high]."""

    of: Value
    high: int


Value = Literal | Ref | Field | Element | IndexValue | Counter | Op | Combine | Make | Products | Fused | Pick | Start

Tests = tuple["Test", ...]


class Test(Struct, frozen=True):
    """``low <= value <= high`` (None: no bound) and ``value % step == 0``."""

    value: Expr
    low: int | None
    high: int | None
    step: int = 1


def type_of(value: Value) -> str:
    """Return the type of an expression; of a combiner's value the combiner's name."""
    match value:
        case Combine(combiner) | Make(combiner):
            return combiner
        case Start():
            return INDEX
        case _:
            return value.dtype


def operands_of(value: Value) -> tuple[Value, ...]:
    """Return the expressions directly inside one."""
    match value:
        case Field(of) | Start(of):
            return (of,)
        case Op(_, _, operands) | Make(_, operands):
            return operands
        case Combine(_, left, right):
            return (left, right)
        case Products(_, pairs):
            return tuple(v for pair in pairs for v in pair)
        case Fused(_, left, right, addend):
            return (left, right, addend)
        case Pick(_, _, choices):
            return choices
        case _:
            return ()
