"""One order for each program: plans must not depend on the order in which a text happens to list its operations.

XLA's passes list the operations of one function in one order, and those of its dump in another; both are right. Here
each operation comes right before the first that reads it, counted from the results on. Operations with effects keep the
order of the text among themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from hlo_parser import Computation, Instruction, Module

from .builder import moved
from .effects import computations_with_effect, instruction_has_effect
from .model import Graph
from .opcodes import has_effect

T = TypeVar("T", int, str)


def ordered(graph: Graph) -> Graph:
    """Return a graph with its nodes, and those of the graphs that it calls, in the order that the results alone
    decide.
    """
    done: dict[Graph, Graph] = {}

    def visit(graph: Graph) -> Graph:
        if graph not in done:
            done[graph] = _ordered(graph, visit)
        return done[graph]

    return visit(graph)


def _ordered(graph: Graph, visit: Callable[[Graph], Graph]) -> Graph:
    effects = [n.id for n in graph.nodes if has_effect(n)]
    before = dict(zip(effects[1:], effects, strict=False))

    def reads(i: int) -> Sequence[int]:
        return graph[i].operands if i not in before else (before[i], *graph[i].operands)

    chosen = post_order((*graph.parameters, *graph.results, *effects), reads)
    number = {old: new for new, old in enumerate(chosen)}
    nodes = []
    for old in chosen:
        node = graph[old]
        called = {k: visit(g) for k, g in node.graphs.items()} if node.graphs else None
        nodes.append(moved(node, number[old], tuple(number[o] for o in node.operands), called))
    parameters, results = (tuple(number[i] for i in ids) for ids in (graph.parameters, graph.results))
    return Graph(graph.name, tuple(nodes), parameters, results, graph.single, graph.layouts)


class Listing:
    """The instructions of a module's computations in that order."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._effectful = computations_with_effect(module)
        self._listings: dict[str, tuple[Instruction, ...]] = {}

    def __getitem__(self, computation: Computation) -> tuple[Instruction, ...]:
        """Return the place of a node: what the root needs comes first, then the rest."""
        name = computation.name
        if name not in self._listings:
            self._listings[name] = self._listed(computation)
        return self._listings[name]

    def _listed(self, computation: Computation) -> tuple[Instruction, ...]:
        effects = [i.name for i in computation if instruction_has_effect(i, self._effectful)]
        before = dict(zip(effects[1:], effects, strict=False))

        def reads(name: str) -> Sequence[str]:
            i = computation[name]
            waits = (*self._operands(i), *i.control_predecessors)
            return waits if name not in before else (before[name], *waits)

        every = (i.name for i in computation)
        return tuple(computation[name] for name in post_order((computation.root.name, *every), reads))

    def _operands(self, i: Instruction) -> Sequence[str]:
        """Return the operands of a fusion in the order in which its operations read them: XLA numbers them as it
        happens to fuse.
        """
        if i.opcode not in ("fusion", "fusion-start") or len(i.operands) < 2:
            return i.operands
        inside = self[self.module.computation(i.attributes["calls"])]
        return [i.operands[p.parameter_number] for p in inside if p.parameter_number is not None]


def post_order(roots: Iterable[T], reads: Callable[[T], Sequence[T]]) -> list[T]:
    """Return all that the roots need, each after what it reads."""
    sequence: dict[T, None] = {}
    waiting = list(roots)[::-1]
    opened: set[T] = set()
    while waiting:
        i = waiting[-1]
        if i in sequence:
            waiting.pop()
        elif i in opened:
            sequence[i] = None
            waiting.pop()
        else:
            opened.add(i)
            waiting.extend(o for o in reversed(reads(i)) if o not in sequence)
    return list(sequence)
