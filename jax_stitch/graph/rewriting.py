"""Apply rules to every node of a graph and of the graphs it calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .builder import Builder, Rule, freeze, moved
from .model import Graph


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """Return a new graph in which each rule had its chance at each node, called graphs first. Duplicates are merged,
    the dead dropped."""
    return rewritten(graph, rules)[graph]


def rewritten(graph: Graph, rules: Sequence[Rule], idle: Collection[Graph] = ()) -> dict[Graph, Graph]:
    """Return what ``rewrite`` makes of a graph and of each that it calls. In ``idle`` graphs no node is looked at: no
    rule is to find anything there, but for what becomes of the graphs that they call.
    """
    done: dict[Graph, Graph] = {}

    def visit(graph: Graph) -> Graph:
        if graph in done:
            return done[graph]
        if graph in idle:
            called = [g for node in graph.nodes if node.graphs for g in node.graphs.values()]
            if list(map(visit, called)) == called:
                done[graph] = graph
                return graph
        builder = Builder(graph.name, rules)
        mapped: dict[int, int] = {}
        for i in graph.parameters:
            mapped[i] = builder.take_parameter(graph[i])
        for number, node in enumerate(graph.nodes):
            if number in mapped:
                continue
            operands = tuple([mapped[o] for o in node.operands])
            changed = {k: visit(g) for k, g in node.graphs.items()} if node.graphs else {}
            if any(g is not node.graphs[k] for k, g in changed.items()):
                node = moved(node, -1, operands, freeze(changed))
            elif operands != node.operands:
                node = moved(node, -1, operands)
            mapped[number] = builder.add(node)
        made = builder.finish([mapped[r] for r in graph.results], graph.single, graph.layouts)
        # What is the same stays the same object: what is known of it stays known.
        done[graph] = graph if _is(made, graph) else made
        return done[graph]

    visit(graph)
    return done


def _is(made: Graph, graph: Graph) -> bool:
    """Return whether it has the very nodes of another graph, with the same results."""
    if len(made.nodes) != len(graph.nodes) or (made.parameters, made.results) != (graph.parameters, graph.results):
        return False
    return all(a is b for a, b in zip(made.nodes, graph.nodes, strict=True))
