"""Constants as XLA's translators take them: each has a value, and is an array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import hlo_parser
from hlo_parser import ELEMENT_TYPES, ArrayShape, FrozenDict, Instruction, Literal, Module, TupleShape
from hlo_parser.rewrite import fresh_name

_MOST = 1 << 20
"""Elements that are made up, and written: rows of what has more are alike, and what it is costs nobody minutes."""


def with_values(module: Module) -> tuple[Module, int]:
    """Return the module with values for the arrays that the text leaves out (``{...}``), all different, and how many
    there are. Constants that are tuples are tuples of constants.
    """
    numbers = itertools.count(1)
    for c in module.computations:
        if any(i.literal is not None and (i.literal.elements or i.literal.missing) for i in c):
            taken = {i.name for i in c}
            instructions = tuple(new for i in c for new in _completed(i, numbers, taken))
            module = hlo_parser.replace_computation(module, replace(c, instructions=instructions))
    return module, next(numbers) - 1


def _completed(i: Instruction, numbers: Iterator[int], taken: set[str]) -> list[Instruction]:
    """Return the instruction, or those that make a constant with values of it, of which it is the last."""
    if i.literal is None or (not i.literal.elements and not i.literal.missing):
        return [i]
    if isinstance(i.shape, TupleShape):
        made, operands = [], []
        for n, literal in enumerate(i.literal.elements):
            operands.append(_name(f"{i.name}.{n}", taken))
            element = Instruction(operands[-1], "constant", literal.shape, literal=literal, metadata=i.metadata)
            made += _completed(element, numbers, taken)
        return [*made, replace(i, opcode="tuple", operands=tuple(operands), literal=None)]
    assert isinstance(i.shape, ArrayShape)
    seed, shape = next(numbers), i.shape
    if shape.size <= _MOST:
        return [replace(i, literal=_filled(shape, seed))]
    first = next(n for n in range(shape.rank + 1) if math.prod(shape.dims[n:]) <= _MOST)
    row = ArrayShape(shape.dtype, shape.dims[first:])
    name = _name(f"{i.name}.row", taken)
    constant = Instruction(name, "constant", row, literal=_filled(row, seed), metadata=i.metadata)
    dimensions = FrozenDict({"dimensions": tuple(range(first, shape.rank))})
    return [constant, replace(i, opcode="broadcast", operands=(name,), attributes=dimensions, literal=None)]


def _name(wanted: str, taken: set[str]) -> str:
    name = fresh_name(wanted, taken)
    taken.add(name)
    return name


def _filled(shape: ArrayShape, seed: int) -> Literal:
    kind = ELEMENT_TYPES[shape.dtype]
    values = np.arange(seed, seed + shape.size) % (2 if kind.bits < 8 or kind.kind == "pred" else 97)
    return Literal.of(values.astype(kind.numpy), shape)
