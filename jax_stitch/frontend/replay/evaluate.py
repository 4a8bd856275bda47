"""A stitched graph as a function that JAX can trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from jax_stitch.graph.model import Graph, Node, TokenType
from jax_stitch.graph.opcodes import calls_python

from .apart import kept_apart
from .checks import callback_number
from .order import ReplayError, order
from .rounding import rounded
from .rules import RULES
from .rules.callback import CALLBACK
from .rules.registry import Called
from .stitched import Segment, StitchedGraph

Function = Callable[[Sequence[Any]], list[Any]]


def replay(stitched: StitchedGraph, callbacks: Sequence[Callable[..., Any]] = ()) -> Function:
    """Return the function that a stitched graph computes: arrays of the parameters in, arrays of the results out;
    tokens are neither. ``callbacks`` are the Python functions that it calls, by number.

    Nodes in no segment become the same operation in JAX; each segment is called once, when its inputs are there.
    Element types are exactly those of the HLO, whether or not x64 is enabled (optimized HLO has 64-bit values inside
    even where the function has none). It may be traced by ``jax.jit``; it has no gradient and no batching rule of its
    own.

    Raises:
        ReplayError: an operation has no rule (ask ``unsupported`` first), or segments wait for one another. Raised
        here, not when it runs.
    """
    function = _function(stitched, callbacks)
    graph = stitched.graph
    tokens = [isinstance(graph[i].type, TokenType) for i in graph.parameters]
    arrays = [k for k, i in enumerate(graph.results) if not isinstance(graph[i].type, TokenType)]

    def run(arguments: Sequence[Any]) -> list[Any]:
        if len(arguments) != tokens.count(False):
            raise ReplayError(f"{graph.name} takes {tokens.count(False)} arguments, not {len(arguments)}")
        given = iter(arguments)
        with jax.enable_x64(True):
            results = function([None if token else next(given) for token in tokens])
        return [results[k] for k in arrays]

    return run


def _function(stitched: StitchedGraph, callbacks: Sequence[Callable[..., Any]]) -> Function:
    stitched = kept_apart(stitched)
    graph = stitched.graph
    steps = order(stitched)
    called = {step: _called(stitched, graph[step], callbacks) for step in steps if isinstance(step, int)}
    for step in called:
        if graph[step].op not in RULES and graph[step].op != "parameter":
            raise ReplayError(f"{graph[step].op} of {graph.name} ({graph[step].name}) has no equal in JAX")

    def run(arguments: Sequence[Any]) -> list[Any]:
        values: dict[int, Any] = dict(zip(graph.parameters, arguments, strict=True))
        for step in steps:
            if isinstance(step, Segment):
                returned = step.call([values[i] for i in step.waits_for])
                values.update(zip(step.outputs, returned, strict=True))
            elif graph[step].op != "parameter":
                node = graph[step]
                with jax.named_scope(node.scope or node.name or node.op):
                    value = RULES[node.op](node, [values[i] for i in node.operands], called[step])
                    values[step] = rounded(graph, node, value)
        return [values[i] for i in graph.results]

    return run


def _called(stitched: StitchedGraph, node: Node, callbacks: Sequence[Callable[..., Any]]) -> Called:
    functions: dict[str, Callable[..., Any]] = {}
    for attribute, graph in node.graphs.items():
        functions[attribute] = _function(stitched.children.get((node.id, attribute), _plain(graph)), callbacks)
    if calls_python(node):
        number = callback_number(node)
        if number >= len(callbacks):
            raise ReplayError(f"{node.name} calls the Python function {number}, of {len(callbacks)} that there are")
        functions[CALLBACK] = callbacks[number]
    return functions.__getitem__


def _plain(graph: Graph) -> StitchedGraph:
    return StitchedGraph(graph)
