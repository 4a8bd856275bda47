"""A computation while it is written: operations on operands, without layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hlo_parser import ELEMENT_TYPES, ArrayShape, Computation, FrozenDict, Instruction, Literal, Shape, TupleShape


class Draft:
    """The parameters of a computation and what is computed of them so far."""

    def __init__(self, operands: Sequence[ArrayShape]) -> None:
        self._instructions: list[Instruction] = []
        self.results: list[Instruction] = []
        self.operands = [self._parameter(n, replace(s, layout=None)) for n, s in enumerate(operands)]

    def add(
        self, opcode: str, shape: Shape, operands: Sequence[Instruction], attributes: Mapping[str, Any] | None = None
    ) -> Instruction:
        """Add an operation, and return it."""
        names = tuple(o.name for o in operands)
        return self._added(Instruction(self._name(opcode), opcode, shape, names, FrozenDict(attributes or {})))

    def number(self, value: float, shape: Shape) -> Instruction:
        """Return an array of one number."""
        assert isinstance(shape, ArrayShape)
        scalar = ArrayShape(shape.dtype, ())
        literal = Literal.of(np.asarray(value).astype(ELEMENT_TYPES[shape.dtype].numpy), scalar)
        made = self._added(Instruction(self._name("constant"), "constant", scalar, literal=literal))
        return self.broadcast(made, shape, ())

    def scaled(self, value: Instruction, factor: float) -> Instruction:
        """Return ``factor * value``."""
        return value if factor == 1 else self.add("multiply", value.shape, [value, self.number(factor, value.shape)])

    def converted(self, value: Instruction, like: ArrayShape) -> Instruction:
        """Return the value in another's element type."""
        assert isinstance(value.shape, ArrayShape)
        if value.shape.dtype == like.dtype:
            return value
        return self.add("convert", replace(value.shape, dtype=like.dtype), [value])

    def broadcast(self, value: Instruction, shape: ArrayShape, dimensions: tuple[int, ...]) -> Instruction:
        """Return the value along other dimensions as well."""
        return self.add("broadcast", shape, [value], {"dimensions": dimensions})

    def returning(self, results: Sequence[Instruction]) -> Draft:
        """Return the draft itself, now that these are its results."""
        self.results = list(results)
        return self

    def computation(self, name: str) -> Computation:
        """Return what was written, under names that begin with its own."""
        instructions = list(self._instructions)
        if len(self.results) == 1:
            root = self.results[0].name
        else:
            shape = TupleShape(tuple(r.shape for r in self.results))
            instructions.append(Instruction("results", "tuple", shape, tuple(r.name for r in self.results)))
            root = "results"
        return Computation(name, tuple(replace(i, is_root=i.name == root) for i in instructions))

    def _parameter(self, number: int, shape: ArrayShape) -> Instruction:
        return self._added(Instruction(f"operand.{number}", "parameter", shape, parameter_number=number))

    def _name(self, opcode: str) -> str:
        return f"{opcode}.{len(self._instructions)}"

    def _added(self, instruction: Instruction) -> Instruction:
        self._instructions.append(instruction)
        return instruction
