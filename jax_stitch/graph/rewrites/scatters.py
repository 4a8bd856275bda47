"""Scatter that touches each row once, made local to the row.

The gradient of ``take_along_axis`` (and so of cross entropy with integer labels) is a scatter whose index vectors are
(row number, label): no two updates meet, and each element of the result depends on its own row alone. As ``select(iota
== label, combine(operand, update), operand)`` that is plain to a fusion.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo_parser import ELEMENT_TYPES

from ..builder import Builder
from ..maps import apply_elementwise, can_apply
from ..model import Node, TensorType
from .simplify import unit_moves


class _Plan(Struct, frozen=True):
    """``row`` maps dimensions of the scatter (those of the indices less the index vector's) to operand dimensions
    along which they count; ``picked`` maps operand dimensions to the index column (of the scatter's dimensions) that
    picks one position there."""

    row: dict[int, int]
    picked: dict[int, int]


def localise_scatter(builder: Builder, node: Node) -> int | None:
    """Return the select form of a row-wise scatter; None for any other."""
    if node.op != "scatter" or len(node.operands) != 3 or not can_apply(node.graphs["to_apply"]):
        return None
    operand, _, updates = (builder[o].tensor for o in node.operands)
    plan = _plan(builder, node)
    if plan is None:
        return None
    update = _spread_updates(builder, node, plan, operand, updates)
    if update is None:
        return None
    combined = apply_elementwise(builder, node, node.graphs["to_apply"], [node.operands[0], update], operand.dims)
    chosen = _chosen(builder, node, plan, operand)
    return builder.derive(node, "select", node.type, [chosen, combined, node.operands[0]])


def _plan(builder: Builder, node: Node) -> _Plan | None:
    a = node.attributes
    operand, indices = builder[node.operands[0]].tensor, builder[node.operands[1]].tensor
    vector = a["index_vector_dim"]
    dims = [size for d, size in enumerate(indices.dims) if d != vector]
    batch = zip(a.get("scatter_indices_batching_dims", ()), a.get("input_batching_dims", ()), strict=True)
    # Batching dimensions are numbered as those of the indices, the index vector's included.
    row = {d - (d > vector): o for d, o in batch}
    picked: dict[int, int] = {}
    for column, target in enumerate(a["scatter_dims_to_operand_dims"]):
        values = _column(builder, node.operands[1], vector, column)
        if values is None:
            return None
        counted = counts_along(builder, values)
        if counted is not None and dims[counted] == operand.dims[target] and counted not in row and dims[counted] > 1:
            row[counted] = target
        else:
            picked[target] = values
    rows = [d for d, size in enumerate(dims) if size > 1]
    distinct = rows and all(d in row for d in rows) and len(set(row.values())) == len(row)
    return _Plan(row, picked) if distinct and all(dims[d] == operand.dims[o] for d, o in row.items()) else None


def _column(builder: Builder, indices: int, vector: int, column: int) -> int | None:
    """Return the node whose value (of the shape of the indices less the vector's dimension) is one component of the
    index vectors."""
    type_ = builder[indices].tensor
    rest = tuple(size for d, size in enumerate(type_.dims) if d != vector)
    if vector == len(type_.dims):
        return indices
    node, at = builder[indices], column
    if node.op == "concatenate" and node.attributes["dimensions"] == (vector,):
        for part in node.operands:
            size = builder[part].tensor.dims[vector]
            if at < size:
                node = builder[part]
                break
            at -= size
    if node.tensor.dims[vector] != 1:
        ranges = tuple((at, at + 1, 1) if d == vector else (0, size, 1) for d, size in enumerate(node.tensor.dims))
        unit = TensorType(type_.dtype, tuple(1 if d == vector else size for d, size in enumerate(node.tensor.dims)))
        node = builder[builder.derive(node, "slice", unit, [node.id], {"slice": ranges})]
    return builder.derive(node, "reshape", TensorType(type_.dtype, rest), [node.id])


def counts_along(builder: Builder, i: int) -> int | None:
    """Return the dimension along which a value counts 0, 1, 2, ..., the same at all other positions, or None."""
    along = _counts_along(builder, i)
    # Counting in a narrow type starts again from its least number.
    return along if along is not None and builder[i].tensor.holds(0, builder[i].tensor.dims[along] - 1) else None


def _counts_along(builder: Builder, i: int) -> int | None:
    node = builder[i]
    if node.op == "iota":
        return int(node.attributes["iota_dimension"])
    if node.op == "convert":
        return counts_along(builder, node.operands[0])
    if node.op == "reshape":
        inner = counts_along(builder, node.operands[0])
        moved = unit_moves(builder[node.operands[0]].tensor.dims, node.tensor.dims)
        return None if inner is None or moved is None else moved.get(inner)
    if node.op == "broadcast":
        inner = counts_along(builder, node.operands[0])
        return None if inner is None else int(node.attributes["dimensions"][inner])
    if node.literal is not None and node.literal.dtype.kind in "iu":
        large = [d for d, size in enumerate(node.literal.shape) if size > 1]
        if len(large) == 1 and np.array_equal(node.literal.reshape(-1), np.arange(node.literal.size)):
            return large[0]
    return None


def _spread_updates(builder: Builder, node: Node, plan: _Plan, operand: TensorType, updates: TensorType) -> int | None:
    """Return the updates over the operand's shape: each element of a row sees its row's update."""
    a = node.attributes
    gone = {*a["inserted_window_dims"], *a.get("input_batching_dims", ())}
    windowed = [d for d in range(len(operand.dims)) if d not in gone]
    window_dims = a["update_window_dims"]
    target: dict[int, int] = {}
    scattered = iter(range(len(updates.dims)))
    for d, size in enumerate(updates.dims):
        if d in window_dims:
            o = windowed[window_dims.index(d)]
            if o in plan.picked or o in plan.row.values():
                if size != 1:
                    return None  # a slice per row, not an element
            elif size == operand.dims[o]:
                target[d] = o
            else:
                return None  # a window that does not fill the dimension it slides along
        elif (s := next(scattered)) in plan.row:
            target[d] = plan.row[s]
    remaining = sorted(target)
    value = builder.derive(
        node, "reshape", TensorType(updates.dtype, tuple(updates.dims[d] for d in remaining)), [node.operands[2]]
    )
    type_ = TensorType(updates.dtype, operand.dims)
    return builder.derive(node, "broadcast", type_, [value], {"dimensions": tuple(target[d] for d in remaining)})


def _chosen(builder: Builder, node: Node, plan: _Plan, operand: TensorType) -> int:
    """Return where an update lands: every picked position agrees. A position out of range agrees with none, as HLO has
    it.
    """
    mask = TensorType("pred", operand.dims)
    agrees: int | None = None
    for o, column in plan.picked.items():
        values = builder[column].tensor
        if ELEMENT_TYPES[values.dtype].bits < 32:  # positions might not fit
            values = TensorType("s32", values.dims)
            column = builder.derive(node, "convert", values, [column])
        remaining = [d for d in range(len(values.dims)) if d in plan.row]
        flat = builder.derive(
            node, "reshape", TensorType(values.dtype, tuple(values.dims[d] for d in remaining)), [column]
        )
        over = TensorType(values.dtype, operand.dims)
        wanted = builder.derive(node, "broadcast", over, [flat], {"dimensions": tuple(plan.row[d] for d in remaining)})
        here = builder.derive(node, "iota", over, (), {"iota_dimension": o})
        equal = builder.derive(node, "compare", mask, [here, wanted], {"direction": "EQ"})
        agrees = equal if agrees is None else builder.derive(node, "and", mask, [agrees, equal])
    if agrees is None:
        true = builder.constant(node, "pred", np.array(True))
        agrees = builder.derive(node, "broadcast", mask, [true], {"dimensions": ()})
    return agrees
