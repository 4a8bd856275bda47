"""What the rules of operations are written with: the table they register in, and the views they take of shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ..model import Computation, Instruction
from ..shapes import ArrayShape, Shape, TupleShape, without_layout
from ..values import EMPTY, Verbatim


class Broken(Exception):
    """A rule is broken, and what else it would check makes no sense then."""


class NotJudged(Exception):
    """The operation has a part this library has no type for."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An instruction with its operands' logical shapes."""

    instruction: Instruction
    operands: tuple[Shape, ...]
    computations: Mapping[str, Computation]
    header: Mapping[str, Any] = EMPTY
    """The module's attributes."""

    @property
    def replicas(self) -> int:
        return self._count("replica_count")

    @property
    def partitions(self) -> int:
        return self._count("num_partitions")

    def _count(self, key: str) -> int:
        value = self.header.get(key, 1)
        return value if isinstance(value, int) else 1

    @property
    def result(self) -> Shape:
        return without_layout(self.instruction.shape)

    def has(self, key: str) -> bool:
        return key in self.instruction.attributes

    def get(self, key: str, default: Any = None) -> Any:
        """Return an attribute's value. Raises NotJudged if it is kept verbatim."""
        value = self.instruction.attributes.get(key, default)
        if isinstance(value, Verbatim):
            raise NotJudged
        return value

    def called(self, key: str) -> Computation:
        return self.computations[self.get(key)]

    def array(self, n: int) -> ArrayShape:
        """Return operand ``n``, which must be an array."""
        shape = self.operands[n]
        return shape if isinstance(shape, ArrayShape) else self.fail(f"operand {n} must be an array, not {shape}")

    @property
    def array_result(self) -> ArrayShape:
        shape = self.result
        return shape if isinstance(shape, ArrayShape) else self.fail(f"the result must be an array, not {shape}")

    def arrays(self) -> tuple[ArrayShape, ...]:
        return tuple(self.array(n) for n in range(len(self.operands)))

    def fail(self, message: str) -> NoReturn:
        raise Broken(message)

    def require(self, condition: bool, message: str) -> None:
        if not condition:
            raise Broken(message)

    def expect_result(self, expected: Shape) -> None:
        self.require(self.result == expected, f"the result should be {expected}, not {self.result}")

    def expect_dims(self, dims: tuple[int, ...], dtype: str | None = None) -> None:
        """Require the result to be an array of these dimensions, and of this type if one is given."""
        self.expect_result(ArrayShape(dtype or self.array_result.dtype, dims))

    def expect_results(self, shapes: tuple[Shape, ...]) -> None:
        """Require one result as itself, several as a tuple."""
        self.expect_result(shapes[0] if len(shapes) == 1 else TupleShape(shapes))

    def check_axes(self, axes: tuple[int, ...], rank: int, what: str) -> None:
        self.require(all(0 <= d < rank for d in axes), f"{what} {axes} are not all below the rank {rank}")
        self.require(len(set(axes)) == len(axes), f"{what} {axes} repeat a dimension")


Rule = Callable[[Operation], None]
RULES: dict[str, Rule] = {}
"""By opcode: raises Broken or NotJudged. It may rely on the number of operands and on required attributes."""


def rule(*opcodes: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for opcode in opcodes:
            assert opcode not in RULES, opcode
            RULES[opcode] = function
        return function

    return register


def parameters(c: Computation) -> tuple[Shape, ...]:
    return tuple(without_layout(p.shape) for p in c.parameters)


def result(c: Computation) -> Shape:
    return without_layout(c.root.shape)


def without_dynamic(shape: Shape) -> Shape:
    """Return the shape with bounds for sizes."""
    match shape:
        case ArrayShape():
            return ArrayShape(shape.dtype, shape.dims, shape.layout) if shape.dynamic else shape
        case TupleShape():
            return TupleShape(tuple(map(without_dynamic, shape.elements)))
        case _:
            return shape


def is_dynamic(shape: Shape) -> bool:
    match shape:
        case ArrayShape():
            return bool(shape.dynamic)
        case TupleShape():
            return any(map(is_dynamic, shape.elements))
        case _:
            return False
