"""Counts of what a module holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .model import Module
from .shapes import ArrayShape, Shape, TupleShape


@dataclass(frozen=True, slots=True)
class Stats:
    """Sizes of a module. ``opcodes`` are sorted by falling count; bytes are those of the entry and of all constants."""

    name: str
    computations: int
    instructions: int
    entry_instructions: int
    opcodes: dict[str, int]
    parameter_bytes: int
    result_bytes: int
    constant_bytes: int

    def __str__(self) -> str:
        width = max(map(len, self.opcodes))
        return "\n".join(
            [
                f"module {self.name}: {self.computations} computations, {self.instructions} instructions "
                f"({self.entry_instructions} in the entry)",
                f"bytes: parameters {self.parameter_bytes:,}, result {self.result_bytes:,}, "
                f"constants {self.constant_bytes:,}",
                *(f"  {opcode:<{width}} {count:>7}" for opcode, count in self.opcodes.items()),
            ]
        )


def shape_bytes(shape: Shape) -> int:
    """Return bytes of the arrays in a shape."""
    match shape:
        case ArrayShape():
            return shape.bytes
        case TupleShape(elements):
            return sum(map(shape_bytes, elements))
        case _:
            return 0


def stats(module: Module) -> Stats:
    """Count over all computations."""
    instructions = [i for c in module.computations for i in c]
    return Stats(
        name=module.name,
        computations=len(module.computations),
        instructions=len(instructions),
        entry_instructions=len(module.entry),
        opcodes=dict(Counter(i.opcode for i in instructions).most_common()),
        parameter_bytes=sum(shape_bytes(p.shape) for p in module.entry.parameters),
        result_bytes=shape_bytes(module.entry.root.shape),
        constant_bytes=sum(shape_bytes(i.shape) for i in instructions if i.opcode == "constant"),
    )
