"""Rotations, XLA's ``shuffle`` in its mode ``rotate``, as the two parts of an array in the other order."""

from __future__ import annotations

from ..builder import Builder
from ..model import Node, TensorType


def rotate_by_slices(builder: Builder, node: Node) -> int | None:
    """Return the concatenations that a rotation is: along each dimension an element comes from ``shift`` places further
    on, and where that is beyond the end, from the beginning.
    """
    if node.op != "shuffle" or str(node.attributes["mode"]) != "rotate":
        return None
    value, dims = node.operands[0], node.tensor.dims
    for dimension, shift in zip(node.attributes["dimensions"], node.attributes["shifts"], strict=True):
        size = dims[dimension]
        if size == 0 or shift % size == 0:
            continue
        parts = [
            _part(builder, node, value, dimension, *bounds) for bounds in ((shift % size, size), (0, shift % size))
        ]
        value = builder.derive(node, "concatenate", node.type, parts, {"dimensions": (dimension,)})
    return value


def _part(builder: Builder, node: Node, value: int, dimension: int, start: int, end: int) -> int:
    """Return the slice of a value from ``start`` to ``end`` along a dimension."""
    dims = list(node.tensor.dims)
    bounds = [(0, size, 1) for size in dims]
    dims[dimension], bounds[dimension] = end - start, (start, end, 1)
    type_ = TensorType(node.tensor.dtype, tuple(dims))
    return builder.derive(node, "slice", type_, [value], {"slice": tuple(bounds)})
