"""A scalar computation applied to whole arrays, element by element."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.util.values import replace

from .builder import Builder
from .model import Graph, Node, TensorType
from .opcodes import ELEMENTWISE


def inline_map(builder: Builder, node: Node) -> int | None:
    """Replace a ``map`` of elementwise operations by these operations."""
    if node.op != "map" or not can_apply(node.graphs["to_apply"]):
        return None
    return apply_elementwise(builder, node, node.graphs["to_apply"], node.operands, node.tensor.dims)


def can_apply(graph: Graph) -> bool:
    """Return whether a scalar computation of one result is made of elementwise operations and constants."""
    return len(graph.results) == 1 and is_elementwise(graph)


def is_elementwise(graph: Graph) -> bool:
    """Return whether a scalar computation, of any number of results, is made of elementwise operations and
    constants.
    """
    return all(n.op in ELEMENTWISE or n.op in ("parameter", "constant") for n in graph.nodes)


def apply_elementwise(
    builder: Builder, origin: Node, graph: Graph, operands: Sequence[int], dims: tuple[int, ...]
) -> int:
    """Return the one result of a scalar computation (``can_apply``) on arrays of shape ``dims``."""
    (result,) = apply_to_arrays(builder, origin, graph, operands, dims)
    return result


def apply_to_arrays(
    builder: Builder, origin: Node, graph: Graph, operands: Sequence[int], dims: tuple[int, ...]
) -> list[int]:
    """Return the results of a scalar computation (``is_elementwise``) on arrays of shape ``dims``."""
    mapped = dict(zip(graph.parameters, operands, strict=True))
    for inner in graph.nodes:
        if inner.id in mapped:
            continue
        if inner.op == "constant":
            scalar = builder.add(inner)
            type_ = TensorType(inner.tensor.dtype, dims)
            mapped[inner.id] = builder.derive(origin, "broadcast", type_, [scalar], {"dimensions": ()})
        else:
            type_ = TensorType(inner.tensor.dtype, dims)
            arguments = tuple(mapped[o] for o in inner.operands)
            at = replace(
                inner,
                type=type_,
                operands=arguments,
                kernel=origin.kernel,
                source=inner.source or origin.source,
                scope=inner.scope or origin.scope,
            )
            mapped[inner.id] = builder.add(at)
    return [mapped[r] for r in graph.results]
