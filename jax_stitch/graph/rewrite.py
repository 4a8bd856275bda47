"""Apply rules to every node of a graph and of the graphs it calls."""

from __future__ import annotations

from collections.abc import Sequence

from .builder import Builder, Rule, freeze, moved
from .model import Graph


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """A new graph in which each rule had its chance at each node, called graphs first. Duplicates are merged, the dead
    dropped."""
    done: dict[Graph, Graph] = {}

    def visit(graph: Graph) -> Graph:
        if graph in done:
            return done[graph]
        builder = Builder(graph.name, rules)
        mapped: dict[int, int] = {}
        for i in graph.parameters:
            mapped[i] = builder.parameter(graph[i].type, graph[i].name, graph[i].source)
        for node in graph.nodes:
            if node.id in mapped:
                continue
            called = freeze({k: visit(g) for k, g in node.graphs.items()}) if node.graphs else None
            operands = tuple(mapped[o] for o in node.operands)
            mapped[node.id] = builder.add(moved(node, -1, operands, called))
        done[graph] = builder.finish([mapped[r] for r in graph.results], graph.single, graph.layouts)
        return done[graph]

    return visit(graph)
