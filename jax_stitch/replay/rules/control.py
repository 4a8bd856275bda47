"""Loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jax import lax

from ...graph.model import Node, TupleType
from .registry import Called, Value, rule


@rule("while")
def _while(node: Node, operands: Sequence[Value], called: Called) -> Value:
    condition, body = called("condition"), called("body")
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
