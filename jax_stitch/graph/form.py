"""What is the same of graphs that compute alike: all but names and numbers of nodes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from jax_stitch.graph.model import Graph, Node


def node_form(node: Node, operands: Sequence[int]) -> Hashable:
    """Return a form that is equal for nodes that compute the same of their operands, which are ``operands`` here."""
    return (
        node.op,
        node.type,
        tuple(operands),
        tuple(sorted((k, repr(v)) for k, v in node.attributes.items())) if node.attributes else (),
        tuple(sorted((k, graph_form(g)) for k, g in node.graphs.items())) if node.graphs else (),
        _bytes(node.literal),
    )


def graph_form(graph: Graph) -> Hashable:
    """Return a form that is equal for graphs of the same nodes in the same order."""
    nodes = tuple(node_form(node, node.operands) for node in graph.nodes)
    return hash(nodes), nodes, graph.parameters, graph.results


def _bytes(literal: np.ndarray | None) -> Hashable:
    return None if literal is None else (str(literal.dtype), literal.shape, literal.tobytes())
