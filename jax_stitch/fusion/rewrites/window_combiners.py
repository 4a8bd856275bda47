"""What windows combine by, when they are written out."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.fusion.rewrites.reductions import accumulated_in, widened
from jax_stitch.graph.builder import Builder
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.util.values import replace

_EXACT = frozenset({"maximum", "minimum", "and", "or", "xor", "select", "compare", "not", "parameter"})
"""What sub-word floats are combined by without rounding."""


def named(graph: Graph, name: str) -> Graph:
    """Return a computation whose nodes have the name of what calls it, by which they are known where they are copied
    to.
    """
    return replace(graph, nodes=tuple(replace(n, name=name) for n in graph.nodes))


def wide_combiner(graph: Graph, dtypes: Sequence[str]) -> tuple[Graph, list[str]]:
    """Return a combiner of values of these element types and the types it is to combine in: of sub-word floats that are
    added up, f32, which rounds no more often than XLA does.
    """
    rounds = any(n.op not in _EXACT for n in graph.nodes)
    if not rounds or len(set(dtypes)) > 1 or any(n.op == "constant" for n in graph.nodes):
        return graph, list(dtypes)
    wide = accumulated_in(dtypes[0], graph)
    return widened(graph, dtypes[0], wide), [wide] * len(dtypes)


def as_type(builder: Builder, node: Node, value: int, dtype: str) -> int:
    """Return a value converted where it has another element type."""
    type_ = TensorType(dtype, builder[value].tensor.dims)
    return value if type_ == builder[value].type else builder.derive(node, "convert", type_, [value])
