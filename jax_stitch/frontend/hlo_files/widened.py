"""A program with wider numbers: what rounding does to its results shows beside them."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from hlo_parser import ELEMENT_TYPES, ArrayShape, FrozenDict, Instruction, Literal, Module, Shape, TupleShape
from hlo_parser.rewrite import map_instructions

_WIDER = MappingProxyType(
    {t.name: "c128" if t.kind == "complex" else "f64" for t in ELEMENT_TYPES.values() if t.kind in ("float", "complex")}
)
_OPAQUE = frozenset({"custom-call", "bitcast-convert", "rng-bit-generator"})
"""What holds bits, or types, that are no numbers to be widened."""


def widened(module: Module) -> Module | None:
    """Return the module with all floating-point numbers in 64 bits; None where an operation depends on their width."""
    if any(i.opcode in _OPAQUE and _is_float(i.shape) for c in module.computations for i in c):
        return None
    plain = replace(module, attributes=FrozenDict())  # The layouts of its entry would name the old types.
    return map_instructions(plain, lambda _, i: _wide(i))


def wider(dtype: np.dtype) -> np.dtype:
    """Return the type that numbers of a type have in the widened program."""
    name = next((t.name for t in ELEMENT_TYPES.values() if t.numpy == dtype), "")
    return ELEMENT_TYPES[_WIDER[name]].numpy if name in _WIDER else dtype


def _wide(i: Instruction) -> Instruction:
    if i.opcode == "reduce-precision":
        return replace(i, opcode="copy", shape=_shape(i.shape), attributes=FrozenDict())
    literal = None if i.literal is None else _literal(i.literal)
    return replace(i, shape=_shape(i.shape), literal=literal)


def _is_float(shape: Shape) -> bool:
    if isinstance(shape, TupleShape):
        return any(map(_is_float, shape.elements))
    return isinstance(shape, ArrayShape) and shape.dtype in _WIDER


def _shape(shape: Shape) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_shape, shape.elements)))
    if isinstance(shape, ArrayShape) and shape.dtype in _WIDER:
        return replace(shape, dtype=_WIDER[shape.dtype])
    return shape


def _literal(literal: Literal) -> Literal:
    if isinstance(literal.shape, TupleShape):
        return replace(literal, shape=_shape(literal.shape), elements=tuple(map(_literal, literal.elements)))
    shape = _shape(literal.shape)
    if literal.array is None or not isinstance(shape, ArrayShape) or shape == literal.shape:
        return literal
    return Literal.of(literal.array.astype(ELEMENT_TYPES[shape.dtype].numpy), shape)
