"""What a loop reads slice by slice, made where it is read: cheap operations before a loop moved into its body."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.builder import Builder, moved
from jax_stitch.graph.model import Graph, Node, TensorType, TupleType
from jax_stitch.ir.operations import ELEMENTWISE, HEAVY

MOVED = ELEMENTWISE - HEAVY | {"broadcast", "concatenate", "pad", "reshape", "reverse", "slice", "transpose"}
"""Operations that cost less than a kernel of their own, wherever they are done."""

MOST = 16
"""Operations moved into a body for one array."""


def with_sunk_producers(graph: Graph, loop: int, *, joins: bool = True) -> Graph:
    """Return the graph with the cheap operations that make arrays for the ``while`` node ``loop`` alone, of which it
    reads a slice at each step, in its body. What is put together of several arrays is not moved unless it ``joins``
    them: a body may keep the whole, at each step.
    """
    node = graph[loop]
    movable = MOVED if joins else MOVED - {"concatenate"}
    chains = {
        k: chain
        for k, made in enumerate(node.operands)
        if is_read_in_slices(graph, node, k) and 0 < len(chain := _chain(graph, made, movable)) <= MOST
    }
    if joins:  # Sharing what they are made of is measured on a CPU alone, which joins none.
        chains = {k: chain for k, chain in chains.items() if graph.users[node.operands[k]] == (loop,)}
    numbers = _sunk(graph, node, chains)
    return _Sunk(graph, node, numbers, movable).done() if numbers else graph


def _sunk(graph: Graph, loop: Node, chains: Mapping[int, set[int]]) -> list[int]:
    """Return the numbers of ``chains`` whose arrays nobody reads but the loop, and others that are made in its body."""
    numbers = list(chains)
    while True:
        inside = set().union(*(chains[k] for k in numbers))
        made = {loop.operands[k] for k in numbers}
        gone: set[int] = set()
        for i in sorted(inside, reverse=True):
            readers = [u for u in graph.users[i] if u not in gone and (u != loop.id or i not in made)]
            if not readers and i not in graph.result_set:
                gone.add(i)
        left = [k for k in numbers if loop.operands[k] in gone]
        if left == numbers:
            return numbers
        numbers = left


def is_read_in_slices(graph: Graph, loop: Node, number: int) -> bool:
    """Return whether a loop reads an array that it carries by slices, and leaves it as it is."""
    body, condition, made = loop.graphs["body"], loop.graphs["condition"], loop.operands[number]
    parameter = body.parameters[number]
    if body.results[number] != parameter or condition.users[condition.parameters[number]]:
        return False
    if any(graph[u].attributes.get("index") == number for u in graph.users[loop.id]):
        return False
    if made in graph.result_set or loop.operands.count(made) != 1:
        return False
    users = [body[u] for u in body.users[parameter]]
    return bool(users) and all(u.op == "dynamic-slice" and u.operands[0] == parameter for u in users)


def _chain(graph: Graph, made: int, movable: Collection[str]) -> set[int]:
    """Return the cheap operations that a value is made by."""
    chain: set[int] = set()
    waiting = [made]
    while waiting and len(chain) <= MOST:
        i = waiting.pop()
        node = graph[i]
        if i not in chain and node.op in movable and isinstance(node.type, TensorType):
            chain.add(i)
            waiting += node.operands
    return chain


@dataclass
class _Sunk:
    """The rewriting of one loop: ``numbers`` are the carried arrays that its body makes from others."""

    graph: Graph
    node: Node
    numbers: list[int]
    movable: Collection[str]
    _new: dict[int, int] = field(default_factory=dict)
    """Values outside that the body reads in their place, by the order of its parameters."""

    def done(self) -> Graph:
        graph, node = self.graph, self.node
        chains = {k: _chain(graph, node.operands[k], self.movable) for k in self.numbers}
        inside = set().union(*chains.values())
        reads = dict.fromkeys(o for i in sorted(inside) for o in graph[i].operands if o not in inside)
        self._new = {o: n for n, o in enumerate(o for o in reads if not is_rematerializable(graph[o]))}
        remaining = [k for k in range(len(node.operands)) if k not in self.numbers]
        builder = Builder(graph.name)
        ids = {i: builder.parameter(graph[i].type, graph[i].name, graph[i].source) for i in graph.parameters}
        for n in graph.nodes:
            if n.id in ids:
                continue
            operands = tuple(ids[o] for o in n.operands)
            if n.id == node.id:
                ids[n.id] = self._loop(builder, ids, remaining, inside)
            elif n.op == "get-tuple-element" and n.operands[0] == node.id:
                index = {"index": remaining.index(n.attributes["index"])}
                ids[n.id] = builder.derive(n, "get-tuple-element", n.type, operands, index)
            else:
                ids[n.id] = builder.add(moved(n, -1, operands))
        return builder.finish([ids[r] for r in graph.results], graph.single, graph.layouts)

    def _loop(self, builder: Builder, ids: Mapping[int, int], remaining: list[int], inside: set[int]) -> int:
        graph, node = self.graph, self.node
        assert isinstance(node.type, TupleType)
        types = (*(node.type.elements[k] for k in remaining), *(graph[o].type for o in self._new))
        operands = [*(ids[node.operands[k]] for k in remaining), *(ids[o] for o in self._new)]
        graphs = {
            "body": self._called(node.graphs["body"], remaining, inside),
            "condition": self._called(node.graphs["condition"], remaining, set()),
        }
        return builder.derive(node, "while", TupleType(types), operands, node.attributes, graphs)

    def _called(self, old: Graph, remaining: list[int], inside: set[int]) -> Graph:
        """Return the body (or the condition, which makes nothing) with its new parameters."""
        graph, node, builder = self.graph, self.node, Builder(old.name)
        ids = {old.parameters[k]: builder.parameter(old[old.parameters[k]].type) for k in remaining}
        outside = {o: builder.parameter(graph[o].type) for o in self._new}
        results = [*outside.values()]
        for i in sorted(inside):
            operands = [self._inside(builder, outside, o) for o in graph[i].operands]
            outside[i] = builder.add(moved(graph[i], -1, tuple(operands)))
        for k in self.numbers:
            if inside:
                ids[old.parameters[k]] = outside[node.operands[k]]
        gone = {old.parameters[k] for k in self.numbers}
        for n in old.nodes:
            if n.id not in ids and n.id not in gone:
                ids[n.id] = builder.add(moved(n, -1, tuple(ids[o] for o in n.operands)))
        is_body = old is node.graphs["body"]
        outputs = [ids[old.results[k]] for k in remaining] + results if is_body else [ids[r] for r in old.results]
        return builder.finish(outputs, old.single, old.layouts)

    def _inside(self, builder: Builder, outside: dict[int, int], i: int) -> int:
        if i not in outside:
            outside[i] = builder.add(moved(self.graph[i], -1, ()))
        return outside[i]
