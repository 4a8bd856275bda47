"""A program under ``jax.jit`` and under ``stitch_jit``: results, errors and numbers of traces side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jax_stitch import stitch_jit
from tests.side_by_side import counted, fallbacks, same, without_addresses

Program = Callable[[Any], Any]
"""From a jit, which it may use as often as it likes, with options or as a decorator, to what is compared."""

X = jnp.linspace(-1.0, 2.0, 12).reshape(3, 4)
V = jnp.linspace(1.0, -1.0, 12).reshape(3, 4)
W = jnp.linspace(0.5, 1.5, 4)
SQUARE = jnp.eye(4) + 0.1 * jnp.arange(16.0).reshape(4, 4)


def softmax(x: Any) -> Any:
    """Two reductions along a row: the smallest thing that is stitched on a CPU."""
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


@dataclass(frozen=True)
class Outcome:
    """What a program returned or raised, and how often each function that it jitted was traced."""

    value: Any
    error: Exception | None
    traces: list[int]
    warnings: list[str]


def outcome(jit: Callable[..., Any], program: Program) -> Outcome:
    """Runs a program and looks."""
    counters = []

    def counting(fun: Any = None, **options: Any) -> Any:
        if fun is None:
            return functools.partial(counting, **options)
        if not callable(fun):
            return jit(fun, **options)
        run, counter = counted(fun)
        counters.append(counter)
        return jit(run, **options)

    value, error = None, None
    with fallbacks() as messages:
        try:
            value = program(counting)
        except Exception as raised:
            error = raised
    return Outcome(value, error, [counter.runs for counter in counters], messages)


def compare(program: Program, *, warnings: int = 0) -> Outcome:
    """Asserts that a program cannot tell the two jits apart, with that many warnings of functions left alone."""
    expected, found = outcome(jax.jit, program), outcome(stitch_jit, program)
    if expected.error is not None or found.error is not None:
        assert type(found.error) is type(expected.error), found.error or expected.error
        assert without_addresses(str(found.error)) == without_addresses(str(expected.error))
    same(found.value, expected.value)
    assert found.traces == expected.traces
    assert len(found.warnings) == warnings, found.warnings
    return found


def returns(program: Program, *, warnings: int = 0) -> None:
    """``compare`` for a program that must not raise: a mistake in it would else pass as agreement."""
    error = compare(program, warnings=warnings).error
    if error is not None:
        raise error


def raises(program: Program) -> None:
    """``compare`` for a program that must raise."""
    assert compare(program).error is not None
