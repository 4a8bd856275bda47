"""Loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jax import lax

from jax_stitch.graph.model import Node, TupleType

from .registry import Called, Value, rule

Told = Callable[[int], None]

_bound: ContextVar[tuple[int, Told] | None] = ContextVar("jax_stitch_bound", default=None)


@contextmanager
def loops_bounded(steps: int, told: Told) -> Iterator[None]:
    """Let loops of unknown length that are traced meanwhile take at most ``steps`` steps. ``told`` hears how many each
    took, when the program runs: as many if it would not have ended.
    """
    before = _bound.set((steps, told))
    try:
        yield
    finally:
        _bound.reset(before)


@rule("while")
def _while(node: Node, operands: Sequence[Value], called: Called) -> Value:
    condition, body = called("condition"), called("body")
    if (bound := _bound.get()) is not None and "trip_count" not in node.attributes:
        steps, told = bound

        def goes_on(carry: tuple[Value, ...]) -> Value:
            return condition(carry[:-1])[0] & (carry[-1] < steps)

        def step(carry: tuple[Value, ...]) -> tuple[Value, ...]:
            return (*body(carry[:-1]), carry[-1] + 1)

        carried: tuple[Value, ...] = lax.while_loop(goes_on, step, (*operands, jnp.int32(0)))
        jax.debug.callback(lambda count: told(int(count)), carried[-1])
        return carried[:-1] if isinstance(node.type, TupleType) else carried[0]
    values = lax.while_loop(lambda carry: condition(carry)[0], lambda carry: tuple(body(carry)), tuple(operands))
    return values if isinstance(node.type, TupleType) else values[0]


@rule("conditional")
def _conditional(node: Node, operands: Sequence[Value], called: Called) -> Value:
    names = [f"branch_{i}" for i in range(len(node.graphs))]
    index, arguments = operands[0], list(operands[1:])
    branches = []
    for name in names:
        count = len(node.graphs[name].parameters)
        branches.append(_closure(called(name), arguments[:count]))
        arguments = arguments[count:]
    if index.dtype == bool:
        values = lax.cond(index, branches[1], branches[0])
    else:
        # Any index out of range means the last branch; lax.switch would take a negative one for the first.
        last = lax.full_like(index, len(branches) - 1)
        inside = lax.bitwise_and(lax.ge(index, lax.full_like(index, 0)), lax.le(index, last))
        values = lax.switch(lax.select(inside, index, last), branches)
    return values if isinstance(node.type, TupleType) else values[0]


def _closure(function: Callable[[Sequence[Value]], list[Value]], arguments: Sequence[Value]) -> Callable[[], Value]:
    return lambda: tuple(function(arguments))
