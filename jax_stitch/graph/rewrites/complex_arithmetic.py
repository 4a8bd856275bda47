"""Arithmetic of complex numbers on their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from hlo_parser import ELEMENT_TYPES

from ..builder import Builder
from ..model import Node, TensorType

Pair = tuple[int, int]
"""The ids of a real and an imaginary part."""


class Arithmetic:
    """Operations on parts, in place of ``origin``; ``type`` is that of each part."""

    def __init__(self, builder: Builder, origin: Node, type_: TensorType) -> None:
        self._builder, self.origin, self.type = builder, origin, type_

    def op(self, opcode: str, *operands: int) -> int:
        """Add an operation of real numbers."""
        return self._builder.derive(self.origin, opcode, self.type, operands)

    def compare(self, direction: str, a: int, b: int) -> int:
        """Add a comparison of real numbers."""
        type_ = TensorType("pred", self.type.dims)
        return self._builder.derive(self.origin, "compare", type_, [a, b], {"direction": direction})

    def logical(self, opcode: str, *operands: int) -> int:
        """Add an operation of truth values."""
        return self._builder.derive(self.origin, opcode, TensorType("pred", self.type.dims), operands)

    def number(self, value: float) -> int:
        """Add an array of one number."""
        literal = np.asarray(value, ELEMENT_TYPES[self.type.dtype].numpy)
        constant = self._builder.constant(self.origin, self.type.dtype, literal)
        if not self.type.dims:
            return constant
        return self._builder.derive(self.origin, "broadcast", self.type, [constant], {"dimensions": ()})

    def select(self, condition: int, a: int, b: int) -> int:
        """Add a choice between two real numbers."""
        return self.op("select", condition, a, b)


def multiplied(m: Arithmetic, x: Pair, y: Pair) -> Pair:
    """Add ``(a + bi)(c + di)``."""
    (a, b), (c, d) = x, y
    real = m.op("subtract", m.op("multiply", a, c), m.op("multiply", b, d))
    return real, m.op("add", m.op("multiply", a, d), m.op("multiply", b, c))


def divided(m: Arithmetic, x: Pair, y: Pair) -> Pair:
    """Add ``(a + bi) / (c + di)``, with all scaled by the larger of ``c`` and ``d``: no square overflows."""
    size = m.op("maximum", m.op("abs", y[0]), m.op("abs", y[1]))
    is_plain = m.logical("and", m.compare("GT", size, m.number(0.0)), m.compare("LT", size, m.number(np.inf)))
    scale = m.select(is_plain, size, m.number(1.0))
    a, b, c, d = (m.op("divide", part, scale) for part in (*x, *y))
    square = m.op("add", m.op("multiply", c, c), m.op("multiply", d, d))
    real = m.op("add", m.op("multiply", a, c), m.op("multiply", b, d))
    imaginary = m.op("subtract", m.op("multiply", b, c), m.op("multiply", a, d))
    return m.op("divide", real, square), m.op("divide", imaginary, square)


def size_of(m: Arithmetic, x: Pair) -> int:
    """Add ``|a + bi|``: the larger part times a root that neither overflows nor underflows."""
    a, b = m.op("abs", x[0]), m.op("abs", x[1])
    large, small = m.op("maximum", a, b), m.op("minimum", a, b)
    ratio = m.op("divide", small, large)
    size = m.op("multiply", large, m.op("sqrt", m.op("add", m.number(1.0), m.op("multiply", ratio, ratio))))
    is_plain = m.logical("and", m.compare("GT", small, m.number(0.0)), m.compare("LT", large, m.number(np.inf)))
    apart = m.select(m.compare("EQ", large, m.number(np.inf)), large, m.op("add", large, small))
    return m.select(is_plain, size, apart)


def exponential(m: Arithmetic, x: Pair) -> Pair:
    """Add ``e^a (cos b + i sin b)``; real where ``b`` is 0."""
    size = m.op("exponential", x[0])
    is_real = m.compare("EQ", x[1], m.number(0.0))
    imaginary = m.select(is_real, x[1], m.op("multiply", size, m.op("sine", x[1])))
    return m.select(is_real, size, m.op("multiply", size, m.op("cosine", x[1]))), imaginary


def logarithm(m: Arithmetic, x: Pair) -> Pair:
    """Add ``log |x| + i arg x``."""
    return m.op("log", size_of(m, x)), m.op("atan2", x[1], x[0])


def root(m: Arithmetic, x: Pair) -> Pair:
    """Add the root of a non-negative real part: ``sqrt((|x| + |a|) / 2)``, and ``b`` over twice that."""
    a, b = x
    half, zero = m.number(0.5), m.number(0.0)
    larger = m.op("sqrt", m.op("multiply", half, m.op("add", size_of(m, x), m.op("abs", a))))
    twice = m.op("add", larger, larger)
    other = m.select(m.compare("EQ", larger, zero), m.op("abs", b), m.op("divide", m.op("abs", b), twice))
    is_right = m.compare("GE", a, zero)
    real, size = m.select(is_right, larger, other), m.select(is_right, other, larger)
    is_below = m.logical("or", m.compare("LT", b, zero), m.compare("LT", m.op("divide", m.number(1.0), b), zero))
    return real, m.select(is_below, m.op("negate", size), size)


def sine_and_cosine(m: Arithmetic, x: Pair) -> tuple[int, int, int, int]:
    """Add ``sin a, cos a, sinh b, cosh b``."""
    a, b = x
    return m.op("sine", a), m.op("cosine", a), m.op("sinh", b), m.op("cosh", b)


def sine(m: Arithmetic, x: Pair) -> Pair:
    """Add ``sin a cosh b + i cos a sinh b``."""
    s, c, sh, ch = sine_and_cosine(m, x)
    return m.op("multiply", s, ch), m.op("multiply", c, sh)


def cosine(m: Arithmetic, x: Pair) -> Pair:
    """Add ``cos a cosh b - i sin a sinh b``."""
    s, c, sh, ch = sine_and_cosine(m, x)
    return m.op("multiply", c, ch), m.op("negate", m.op("multiply", s, sh))


def sign(m: Arithmetic, x: Pair) -> Pair:
    """Add ``x / |x|``, and 0 for 0."""
    size = size_of(m, x)
    is_zero = m.compare("EQ", size, m.number(0.0))
    real, imaginary = (m.select(is_zero, part, m.op("divide", part, size)) for part in x)
    return real, imaginary


def _each(opcode: str) -> Callable[[Arithmetic, Sequence[tuple[int, ...]]], Pair]:
    """Return what does the same to both parts."""

    def add(m: Arithmetic, values: Sequence[tuple[int, ...]]) -> Pair:
        return m.op(opcode, *(v[0] for v in values)), m.op(opcode, *(v[1] for v in values))

    return add


def _selected(m: Arithmetic, values: Sequence[tuple[int, ...]]) -> Pair:
    (condition,), a, b = values
    return m.select(condition, a[0], b[0]), m.select(condition, a[1], b[1])


def _compared(m: Arithmetic, values: Sequence[tuple[int, ...]]) -> tuple[int]:
    """Add whether two numbers are equal, or are not."""
    direction = m.origin.attributes["direction"]
    real, imaginary = (m.compare(direction, a, b) for a, b in zip(*values, strict=True))
    return (m.logical("and" if direction == "EQ" else "or", real, imaginary),)


def _of(function: Callable[..., tuple[int, int]]) -> Callable[[Arithmetic, Sequence[tuple[int, ...]]], Pair]:
    return lambda m, values: function(m, *values)


ARITHMETIC: Mapping[str, Callable[[Arithmetic, Sequence[tuple[int, ...]]], tuple[int, ...]]] = MappingProxyType(
    {
        "abs": lambda m, values: (size_of(m, (values[0][0], values[0][1])),),
        "add": _each("add"),
        "compare": _compared,
        "cosine": _of(cosine),
        "divide": _of(divided),
        "exponential": _of(exponential),
        "log": _of(logarithm),
        "multiply": _of(multiplied),
        "negate": _each("negate"),
        "select": _selected,
        "sign": _of(sign),
        "sine": _of(sine),
        "sqrt": _of(root),
        "subtract": _each("subtract"),
    }
)
"""By opcode: what adds an operation of complex numbers, of the parts of each operand (a real one has itself alone)."""
