"""Local rules that drop what does nothing and bring equal things into one form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_parser import ELEMENT_TYPES

from ..builder import Builder
from ..model import Node, TensorType


def simplify_movement(builder: Builder, node: Node) -> int | None:
    """Drop data movement that moves nothing, and join it with the movement before it."""
    match node.op:
        case "reshape":
            return _reshape(builder, node)
        case "transpose":
            return _transpose(builder, node)
        case "broadcast":
            return _broadcast(builder, node)
        case "slice":
            source = builder[node.operands[0]]
            return source.id if source.type == node.type else None
        case "dynamic-slice":
            return _dynamic_slice(builder, node)
        case "concatenate" if len(node.operands) == 1:
            return node.operands[0]
        case "pad" if all(p == (0, 0, 0) for p in node.attributes["padding"]):
            return node.operands[0]
    return None


def order_broadcast(builder: Builder, node: Node) -> int | None:
    """Split a broadcast that transposes too."""
    dims = node.attributes.get("dimensions", ())
    if node.op != "broadcast" or list(dims) == sorted(dims):
        return None
    source, order = builder[node.operands[0]].tensor, tuple(sorted(range(len(dims)), key=lambda i: dims[i]))
    type_ = TensorType(source.dtype, tuple(source.dims[i] for i in order))
    moved = builder.derive(node, "transpose", type_, node.operands, {"dimensions": order})
    return builder.derive(node, "broadcast", node.type, [moved], {"dimensions": tuple(sorted(dims))})


def simplify_convert(builder: Builder, node: Node) -> int | None:
    """Drop a conversion to the type that the value has."""
    if node.op in ("convert", "bitcast-convert") and builder[node.operands[0]].type == node.type:
        return node.operands[0]
    return None


def simplify_select(builder: Builder, node: Node) -> int | None:
    """Replace a selection whose outcome is known."""
    if node.op != "select":
        return None
    choice, on_true, on_false = (builder[o] for o in node.operands)
    if on_true.id == on_false.id:
        return on_true.id
    value = known_value(builder, choice.id)
    return None if value is None else (on_true.id if value else on_false.id)


def simplify_sign(builder: Builder, node: Node) -> int | None:
    """Drop negations that change nothing: two in a row, and that of an even function's operand. Softplus of ``x`` and
    of ``-x`` then share their exponential and logarithm.
    """
    if node.op not in ("negate", "abs", "cosine"):
        return None
    source = builder[node.operands[0]]
    is_even = source.tensor.dtype[0] != "u"  # Of unsigned numbers ``abs`` is the identity.
    if source.op != "negate" or not (node.op == "negate" or is_even):
        return None
    return source.operands[0] if node.op == "negate" else builder.derive(node, node.op, node.type, source.operands)


def simplify_quotient(builder: Builder, node: Node) -> int | None:
    """Replace an integer's quotient by itself, and its remainder, by 1 and 0: LLVM does, of zero too, where a quotient
    by another zero has all bits set.
    """
    if node.op not in ("divide", "remainder") or node.operands[0] != node.operands[1]:
        return None
    if node.tensor.dtype[0] not in "su":
        return None
    value = np.array(node.op == "divide", ELEMENT_TYPES[node.tensor.dtype].numpy)
    one = builder.constant(node, node.tensor.dtype, value)
    return builder.derive(node, "broadcast", node.type, [one], {"dimensions": ()}) if node.tensor.dims else one


def known_value(builder: Builder, i: int) -> np.generic | None:
    """Return the value of a node whose elements are all the same constant, else None."""
    node = builder[i]
    if node.op in ("broadcast", "reshape", "transpose"):
        return known_value(builder, node.operands[0])
    if node.literal is not None and node.literal.size == 1:
        return node.literal.reshape(-1)[0]
    return None


def _reshape(builder: Builder, node: Node) -> int | None:
    source = builder[node.operands[0]]
    if source.type == node.type:
        return source.id
    if source.op == "reshape":
        return builder.derive(node, "reshape", node.type, source.operands)
    if source.op == "broadcast" and not source.attributes["dimensions"]:
        return builder.derive(node, "broadcast", node.type, source.operands, {"dimensions": ()})
    if source.op == "iota" and (moved := unit_moves(source.tensor.dims, node.tensor.dims)) is not None:
        where = moved.get(source.attributes["iota_dimension"])
        return None if where is None else builder.derive(node, "iota", node.type, (), {"iota_dimension": where})
    if source.op == "concatenate" and (moved := unit_moves(source.tensor.dims, node.tensor.dims)) is not None:
        return _reshape_of_concatenate(builder, node, source, moved)
    return None


def _reshape_of_concatenate(builder: Builder, node: Node, source: Node, moved: dict[int, int]) -> int | None:
    """Reshape each part by itself if only unit dimensions come and go: index vectors come to light so."""
    where = moved.get(source.attributes["dimensions"][0])
    if where is None:
        return None
    dims, parts = node.tensor.dims, []
    for part in source.operands:
        size = builder[part].tensor.dims[source.attributes["dimensions"][0]]
        type_ = TensorType(node.tensor.dtype, (*dims[:where], size, *dims[where + 1 :]))
        parts.append(builder.derive(node, "reshape", type_, [part]))
    return builder.derive(node, "concatenate", node.type, parts, {"dimensions": (where,)})


def unit_moves(source: Sequence[int], target: Sequence[int]) -> dict[int, int] | None:
    """Return where each dimension above 1 goes in a reshape that only adds and removes unit dimensions; None for other
    reshapes."""
    large = [d for d, size in enumerate(source) if size != 1]
    places = [d for d, size in enumerate(target) if size != 1]
    if [source[d] for d in large] != [target[d] for d in places]:
        return None
    return dict(zip(large, places, strict=True))


def _transpose(builder: Builder, node: Node) -> int | None:
    source, permutation = builder[node.operands[0]], node.attributes["dimensions"]
    if permutation == tuple(range(len(permutation))):
        return source.id
    large = [d for d in permutation if source.tensor.dims[d] != 1]
    if large == sorted(large):
        return builder.derive(node, "reshape", node.type, [source.id])
    if source.op == "transpose":
        joined = tuple(source.attributes["dimensions"][d] for d in permutation)
        return builder.derive(node, "transpose", node.type, source.operands, {"dimensions": joined})
    if source.op == "broadcast":
        # Dimension i of the operand was result dimension d, which the transpose puts where the permutation says d.
        dims = tuple(permutation.index(d) for d in source.attributes["dimensions"])
        return builder.derive(node, "broadcast", node.type, source.operands, {"dimensions": dims})
    return None


def _broadcast(builder: Builder, node: Node) -> int | None:
    source, dims = builder[node.operands[0]], node.attributes["dimensions"]
    if source.type == node.type:
        return source.id
    if source.op == "broadcast":
        joined = tuple(dims[d] for d in source.attributes["dimensions"])
        return builder.derive(node, "broadcast", node.type, source.operands, {"dimensions": joined})
    if source.op == "reshape" and not builder[source.operands[0]].tensor.dims:
        return builder.derive(node, "broadcast", node.type, source.operands, {"dimensions": ()})
    return None


def _dynamic_slice(builder: Builder, node: Node) -> int | None:
    source, starts = builder[node.operands[0]], [known_value(builder, o) for o in node.operands[1:]]
    if source.type == node.type:
        return source.id
    if any(s is None for s in starts):
        return None
    ranges = []
    for start, size, whole in zip(starts, node.tensor.dims, source.tensor.dims, strict=True):
        assert start is not None
        first = min(max(int(start), 0), whole - size)  # HLO clamps
        ranges.append((first, first + size, 1))
    return builder.derive(node, "slice", node.type, [source.id], {"slice": tuple(ranges)})
