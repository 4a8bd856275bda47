"""The table of elementwise operations.

A new one is a row here and its arithmetic in ``backend/runtime/``: kernels hold it, its C++ text, its cost and its
counterpart in ``jax.lax`` are read from the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from msgspec import Struct


class Cost(Enum):
    """What one element takes."""

    LIGHT = "light"
    """An instruction or two."""
    HEAVY = "heavy"
    """So many instructions that a value is worth computing once: sub-roots of the 2021 paper (section 4.2)."""


class Operation(Struct, frozen=True):
    """What the stages know of an elementwise operation."""

    opcode: str
    """HLO's name."""
    cpp: str | None = None
    """The function of ``st::`` in ``backend/runtime/`` that computes one element from one of each operand; None where
    ``emit/cpp/scalar.py`` writes it otherwise, since the text depends on attributes or types.
    """
    lax: str | None = None
    """The function of ``jax.lax`` that takes the operands; None where ``replay/rules`` has a rule for it."""
    cost: Cost = Cost.LIGHT
    made_of: tuple[str, ...] = ()
    """The operations that the runtime makes it of, which are counted in its place. A heavy one that is made of none has
    figures of its own in ``devices/specs/latency_*.toml``.
    """


TABLE: Mapping[str, Operation] = MappingProxyType(
    {
        operation.opcode: operation
        for operation in (
            Operation("abs", cpp="abs"),
            Operation("acos", cpp="acos", lax="acos", made_of=("atan2", "sqrt"), cost=Cost.HEAVY),
            Operation("acosh", cpp="acosh", lax="acosh", made_of=("log", "log-plus-one", "sqrt"), cost=Cost.HEAVY),
            Operation("add", cpp="add", lax="add"),
            Operation("and", cpp="bitwise_and", lax="bitwise_and"),
            Operation("asin", cpp="asin", lax="asin", made_of=("atan2", "sqrt"), cost=Cost.HEAVY),
            Operation(
                "asinh", cpp="asinh", lax="asinh", made_of=("divide", "log", "log-plus-one", "sqrt"), cost=Cost.HEAVY
            ),
            Operation("atan2", cpp="atan2", lax="atan2", cost=Cost.HEAVY),
            Operation("atanh", cpp="atanh", lax="atanh", made_of=("divide", "log-plus-one"), cost=Cost.HEAVY),
            Operation("bitcast-convert"),
            Operation("cbrt", cpp="cbrt", lax="cbrt", cost=Cost.HEAVY),
            Operation("ceil", cpp="ceil", lax="ceil"),
            Operation("clamp"),
            Operation("compare"),
            Operation("complex", cpp="complex_of", lax="complex"),
            Operation("convert"),
            Operation(
                "cosh", cpp="cosh", lax="cosh", made_of=("divide", "exponential", "exponential"), cost=Cost.HEAVY
            ),
            Operation("cosine", cpp="cos", lax="cos", cost=Cost.HEAVY),
            Operation("count-leading-zeros", cpp="count_leading_zeros", lax="clz"),
            Operation("divide", cpp="divide", lax="div", cost=Cost.HEAVY),
            Operation("erf", cpp="erf", lax="erf", cost=Cost.HEAVY),
            Operation("exp2", cpp="exp2", lax="exp2", made_of=("exponential",), cost=Cost.HEAVY),
            Operation("exponential", cpp="exp", lax="exp", cost=Cost.HEAVY),
            Operation("exponential-minus-one", cpp="expm1", lax="expm1", cost=Cost.HEAVY),
            Operation("floor", cpp="floor", lax="floor"),
            Operation("imag", cpp="imaginary_part", lax="imag"),
            Operation("is-finite", cpp="is_finite", lax="is_finite"),
            Operation("log", cpp="log", lax="log", cost=Cost.HEAVY),
            Operation("log-plus-one", cpp="log1p", lax="log1p", cost=Cost.HEAVY),
            Operation("log2", cpp="log2", made_of=("log",), cost=Cost.HEAVY),
            Operation("logistic", cpp="logistic", lax="logistic", cost=Cost.HEAVY),
            Operation("maximum", cpp="maximum", lax="max"),
            Operation("minimum", cpp="minimum", lax="min"),
            Operation("mulhi", cpp="mulhi"),
            Operation("multiply", cpp="multiply", lax="mul"),
            Operation("negate", cpp="negate", lax="neg"),
            Operation("not", cpp="bitwise_not", lax="bitwise_not"),
            Operation("or", cpp="bitwise_or", lax="bitwise_or"),
            Operation("popcnt", cpp="popcnt", lax="population_count"),
            Operation("power", cpp="power", cost=Cost.HEAVY),
            Operation("real", cpp="real_part", lax="real"),
            Operation("reduce-precision"),
            Operation("remainder", cpp="remainder", lax="rem", cost=Cost.HEAVY),
            Operation("round-nearest-afz", cpp="round_half_away"),
            Operation("round-nearest-even", cpp="round_half_even"),
            Operation("rsqrt", cpp="rsqrt", lax="rsqrt", cost=Cost.HEAVY),
            Operation("select"),
            Operation("shift-left", cpp="shift_left", lax="shift_left"),
            Operation("shift-right-arithmetic", cpp="shift_right_arithmetic", lax="shift_right_arithmetic"),
            Operation("shift-right-logical", cpp="shift_right_logical", lax="shift_right_logical"),
            Operation("sign", cpp="sign", lax="sign"),
            Operation("sine", cpp="sin", lax="sin", cost=Cost.HEAVY),
            Operation(
                "sinh",
                cpp="sinh",
                lax="sinh",
                made_of=("divide", "exponential", "exponential-minus-one"),
                cost=Cost.HEAVY,
            ),
            Operation("sqrt", cpp="sqrt", lax="sqrt", cost=Cost.HEAVY),
            Operation("subtract", cpp="subtract", lax="sub"),
            Operation("tan", cpp="tan", lax="tan", cost=Cost.HEAVY),
            Operation("tanh", cpp="tanh", lax="tanh", cost=Cost.HEAVY),
            Operation("xor", cpp="bitwise_xor", lax="bitwise_xor"),
        )
    }
)
"""All operations that kernels hold, by opcode."""

ELEMENTWISE = frozenset(TABLE)
HEAVY = frozenset(opcode for opcode, operation in TABLE.items() if operation.cost is Cost.HEAVY)
