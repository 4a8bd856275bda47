"""The parser's shapes as types of the graph."""

from __future__ import annotations

from hlo_parser import ArrayShape, Shape, TokenShape, TupleShape

from .errors import GraphError
from .model import NodeType, TensorType, TokenType, TupleType


def node_type(shape: Shape, where: str) -> NodeType:
    """Return the logical type of a shape. Raises GraphError for what a graph cannot hold (dynamic dimensions, opaque
    values)."""
    match shape:
        case ArrayShape():
            if shape.dynamic:
                raise GraphError(f"{where}: {shape} has a dimension whose size is known only at run time")
            return TensorType(shape.dtype, shape.dims)
        case TupleShape():
            return TupleType(tuple(node_type(e, where) for e in shape.elements))
        case TokenShape():
            return TokenType()
    raise GraphError(f"{where}: a value of shape {shape} is neither an array nor a tuple of arrays")


def minor_to_major(shape: ArrayShape) -> tuple[int, ...]:
    """Return the layout of an array, row-major where none is given."""
    return tuple(reversed(range(len(shape.dims)))) if shape.layout is None else shape.layout.minor_to_major


def explicit_layout(shape: Shape) -> tuple[int, ...] | None:
    """Return the layout as ``GraphLayouts`` keeps it: None for row-major or for what is no array."""
    if not isinstance(shape, ArrayShape):
        return None
    order = minor_to_major(shape)
    return None if order == tuple(reversed(range(len(shape.dims)))) else order
