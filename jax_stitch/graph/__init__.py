"""Module -> Graph: from XLA's optimized HLO to one flat dataflow graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jax_stitch.util.later import later

from .errors import GraphError
from .model import Graph, GraphLayouts, Node, NodeType, TensorType, TokenType, TupleType

if TYPE_CHECKING:
    from .building import build
    from .collectives import has_collectives
    from .flattening import flatten
    from .rewriting import rewrite
    from .verifier import verify

__all__ = [
    "Graph",
    "GraphError",
    "GraphLayouts",
    "Node",
    "NodeType",
    "TensorType",
    "TokenType",
    "TupleType",
    "build",
    "flatten",
    "has_collectives",
    "rewrite",
    "verify",
]

if not TYPE_CHECKING:
    # A process that has a graph's values and makes none imports none of what makes them.
    __getattr__ = later(
        __name__,
        {
            "build": "jax_stitch.graph.building",
            "flatten": "jax_stitch.graph.flattening",
            "has_collectives": "jax_stitch.graph.collectives",
            "rewrite": "jax_stitch.graph.rewriting",
            "verify": "jax_stitch.graph.verifier",
        },
    )
