"""A graph as text that people read and that can be compared line by line."""

from __future__ import annotations

from collections.abc import Iterator

from .model import Graph, Node


def graph_lines(graph: Graph, *, combiners: bool = False) -> Iterator[str]:
    """Yield the lines of a graph, and after it those of each that it calls; of ``combiners`` too if they are wanted."""
    yield f"graph {graph.name} {{"
    yield from (f"  {node_line(node)}" + (f"  // {node.kernel}" if node.kernel else "") for node in graph.nodes)
    yield f"  return {', '.join(f'%{i}' for i in graph.results)}"
    yield "}"
    for node, name, called in _called(graph, combiners):
        yield f"\n// {name} of %{node}"
        yield from graph_lines(called, combiners=combiners)


def node_line(node: Node) -> str:
    """Return a node with its attributes, and the value of a constant that is one number."""
    attributes = "".join(f", {name}={value}" for name, value in node.attributes.items() if value not in ("", ()))
    if node.literal is not None and node.literal.size == 1:
        attributes = f" {node.literal.item()}"
    return f"{node}{attributes}"


def _called(graph: Graph, combiners: bool) -> Iterator[tuple[int, str, Graph]]:
    """Yield what its nodes call. Combiners are in the nodes' kernels, too."""
    for node in graph.nodes:
        if combiners or node.op in ("while", "conditional", "call"):
            yield from ((node.id, name, called) for name, called in node.graphs.items())
