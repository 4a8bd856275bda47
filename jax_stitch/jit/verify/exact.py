"""A graph in float64: what its kernels would compute without rounding, as near as that comes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from jax_stitch.graph.model import Graph, Node, NodeType, TensorType, TupleType
from jax_stitch.jit.tune.units import needed
from jax_stitch.util.values import replace

_NARROW = frozenset({"f16", "bf16", "f32"})

_OF_ITS_TYPE = frozenset({"bitcast-convert", "custom-call", "reduce-precision"})
"""Operations that have no meaning for values of a wider type."""


def widened(graph: Graph) -> Graph | None:
    """Return the graph with all floating values in 64 bits; None where it insists on their types."""
    nodes: list[Node] = []
    read = {node.id for node in needed(graph)}
    for node in graph.nodes:
        if node.id not in read and node.op != "parameter":  # Of a kernel's graph, the rest of the program.
            nodes.append(node)
            continue
        graphs: dict[str, Graph] = {}
        for name, called in node.graphs.items():
            wide = widened(called)
            if wide is None:
                return None
            graphs[name] = wide
        types = [node.type, *(graph[o].type for o in node.operands)]
        if any(_is_odd(t) for t in types) or (node.op in _OF_ITS_TYPE and any(_wide(t) != t for t in types)):
            return None
        nodes.append(
            replace(
                node,
                type=_wide(node.type),
                attributes=_attributes(node),
                graphs=MappingProxyType(graphs),
                literal=_literal(node),
            )
        )
    return replace(graph, nodes=tuple(nodes))


def _wide(type: NodeType) -> NodeType:
    match type:
        case TensorType(dtype, dims):
            return TensorType("f64", dims) if dtype in _NARROW else type
        case TupleType(elements):
            return TupleType(tuple(map(_wide, elements)))
    return type


def _is_odd(type: NodeType) -> bool:
    """Return whether it is a type of a few bits, or complex."""
    match type:
        case TensorType(dtype, _):
            return dtype.startswith(("f8", "f4", "c"))
        case TupleType(elements):
            return any(map(_is_odd, elements))
    return False


def _attributes(node: Node) -> Mapping[str, object]:
    """Return attributes without the algorithm of a product, which is one of narrower types."""
    if "algorithm" not in node.attributes:
        return node.attributes
    return MappingProxyType({k: v for k, v in node.attributes.items() if k != "algorithm"})


def _literal(node: Node) -> np.ndarray | None:
    if node.literal is None or not isinstance(node.type, TensorType) or node.type.dtype not in _NARROW:
        return node.literal
    return node.literal.astype(np.float64)
