"""Scatter to evenly spaced places (``x.at[:, 1::2].set(y)``), which XLA keeps as one although no place is data."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo_parser import ELEMENT_TYPES

from ..builder import Builder
from ..maps import apply_elementwise, can_apply
from ..model import Node, TensorType
from .simplify import unit_moves


class _Spaced(Struct, frozen=True):
    """Values ``start``, ``start + step``, ... along dimension ``along`` (-1 where there is one value)."""

    along: int
    start: int
    step: int


def space_scatter(builder: Builder, node: Node) -> int | None:
    """Return a ``scatter`` along one dimension, to distinct places known now, as a ``select`` between what was there
    and the updates padded to its shape.
    """
    if node.op != "scatter" or len(node.operands) != 3 or not can_apply(node.graphs["to_apply"]):
        return None
    a = node.attributes
    operand, indices, updates = (builder[o].tensor for o in node.operands)
    targets, vector = a["scatter_dims_to_operand_dims"], a["index_vector_dim"]
    count = [size for d, size in enumerate(indices.dims) if d != vector]
    if len(targets) != 1 or len(count) != 1 or a.get("input_batching_dims"):
        return None
    (axis,) = targets
    places = _spacing(builder, node.operands[1])
    if places is None or places.along in (-1, vector) or places.step < 1:
        return None
    last = places.start + (count[0] - 1) * places.step
    if places.start < 0 or last >= operand.dims[axis]:
        return None
    update = _updates(builder, node, axis)
    if update is None:
        return None
    padding = tuple(
        (places.start, operand.dims[d] - 1 - last, places.step - 1) if d == axis else (0, 0, 0)
        for d in range(len(operand.dims))
    )
    zero = builder.constant(node, updates.dtype, np.zeros((), ELEMENT_TYPES[updates.dtype].numpy))
    spread = TensorType(updates.dtype, operand.dims)
    padded = builder.derive(node, "pad", spread, [update, zero], {"padding": padding})
    true, false = (builder.constant(node, "pred", np.array(value)) for value in (True, False))
    everywhere = TensorType("pred", builder[update].tensor.dims)
    touched = builder.derive(node, "broadcast", everywhere, [true], {"dimensions": ()})
    mask = builder.derive(node, "pad", TensorType("pred", operand.dims), [touched, false], {"padding": padding})
    combined = apply_elementwise(builder, node, node.graphs["to_apply"], [node.operands[0], padded], operand.dims)
    return builder.derive(node, "select", node.type, [mask, combined, node.operands[0]])


def _updates(builder: Builder, node: Node, axis: int) -> int | None:
    """Return the updates with dimensions in the operand's order, the scattered one in the place of ``axis``."""
    a = node.attributes
    operand, updates = builder[node.operands[0]].tensor, builder[node.operands[2]].tensor
    window = a["update_window_dims"]
    windowed = [d for d in range(len(operand.dims)) if d not in a["inserted_window_dims"]]
    targets = {d: windowed[window.index(d)] for d in range(len(updates.dims)) if d in window}
    if any(updates.dims[d] != (1 if o == axis else operand.dims[o]) for d, o in targets.items()):
        return None
    remaining = [d for d in range(len(updates.dims)) if targets.get(d) != axis]
    order = sorted(range(len(remaining)), key=lambda k: targets.get(remaining[k], axis))
    flat = TensorType(updates.dtype, tuple(updates.dims[d] for d in remaining))
    value = builder.derive(node, "reshape", flat, [node.operands[2]])
    transposed = TensorType(updates.dtype, tuple(flat.dims[k] for k in order))
    return builder.derive(node, "transpose", transposed, [value], {"dimensions": tuple(order)})


def _spacing(builder: Builder, i: int) -> _Spaced | None:
    """Return how an integer value is spaced, the same at all other positions; ``None`` if that is not known."""
    node = builder[i]
    if not isinstance(node.type, TensorType) or node.type.dtype[0] not in "su":
        return None
    spacing: _Spaced | None = None
    if node.op == "iota":
        spacing = _Spaced(node.attributes["iota_dimension"], 0, 1)
    elif node.literal is not None:
        spacing = _listed(node.literal)
    elif node.op in ("convert", "reshape", "broadcast"):
        inner = _spacing(builder, node.operands[0])
        along = None if inner is None else _moved(builder, node, inner.along)
        spacing = None if inner is None or along is None else _Spaced(along, inner.start, inner.step)
    elif node.op in ("add", "multiply"):
        left, right = (_spacing(builder, o) for o in node.operands)
        spacing = None if left is None or right is None else _combined(node.op, left, right)
    bound = np.iinfo(ELEMENT_TYPES[node.type.dtype].numpy)
    largest = 0 if spacing is None else spacing.start + spacing.step * max(node.type.dims, default=1)
    return spacing if bound.min <= largest <= bound.max else None


def _listed(literal: np.ndarray) -> _Spaced | None:
    large = [d for d, size in enumerate(literal.shape) if size > 1]
    values = literal.reshape(-1).astype(object)
    if not large and literal.size == 1:
        return _Spaced(-1, int(values[0]), 0)
    steps = set(values[1:] - values[:-1])
    return _Spaced(large[0], int(values[0]), int(steps.pop())) if len(large) == len(steps) == 1 else None


def _moved(builder: Builder, node: Node, along: int) -> int | None:
    """Return the dimension of a move that was ``along`` of its operand."""
    if along == -1 or node.op == "convert":
        return along
    if node.op == "broadcast":
        return int(node.attributes["dimensions"][along])
    moved = unit_moves(builder[node.operands[0]].tensor.dims, node.tensor.dims)
    return None if moved is None else moved.get(along)


def _combined(op: str, left: _Spaced, right: _Spaced) -> _Spaced | None:
    if -1 not in (left.along, right.along):
        return None
    some, one = (left, right) if right.along == -1 else (right, left)
    if op == "add":
        return _Spaced(some.along, some.start + one.start, some.step)
    return _Spaced(some.along, some.start * one.start, some.step * one.start)
