"""Scatter to places that are constants (``x.at[[3, 1, 7]].add(y)``, ``segment_sum`` over edges known now), as selects
between what was there and updates that each place looks up in a table.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hlo_parser import ELEMENT_TYPES

from ..builder import Builder
from ..maps import apply_elementwise, can_apply
from ..model import Node, TensorType
from ..row_scatters import RowScatter, row_scatter

MOST_UPDATES = 8
"""Updates of one place: each is a look-up at all of them."""

FEW_PLACES, SPARSE = 1024, 4
"""Elements up to which an array is written whole, and of a larger one how many times those of its updates: XLA touches
only what is updated.
"""


def place_scatter(builder: Builder, node: Node) -> int | None:
    """Return the select form of a scatter to constant places, where it does not write much more than its updates."""
    if node.op != "scatter" or len(node.operands) != 3 or not can_apply(node.graphs["to_apply"]):
        return None
    operand, _, updates = (builder[o].tensor for o in node.operands)
    form, places = row_scatter(builder, node), builder[node.operands[1]].literal
    if form is None or places is None or operand.size > max(FEW_PLACES, SPARSE * updates.size):
        return None
    layers = _layers(_linear(places, form, operand.dims), prod(operand.dims[d] for d in form.targets))
    if len(layers) > MOST_UPDATES:
        return None
    if _keeps_last(node):
        layers = [_last(layers)]
    return _selected(builder, node, form, layers)


def _linear(places: np.ndarray, form: RowScatter, dims: tuple[int, ...]) -> np.ndarray:
    """Return the place of each update among all that can be picked; -1 where it is none of them, and dropped."""
    linear = np.zeros(len(places), np.int64)
    inside = np.ones(len(places), bool)
    for column, d in enumerate(form.targets):
        at = places[:, column].astype(object)
        inside &= np.array([0 <= p < dims[d] for p in at], bool)
        linear = linear * dims[d] + np.where(inside, at, 0).astype(np.int64)
    return np.where(inside, linear, -1)


def _layers(places: np.ndarray, size: int) -> list[np.ndarray]:
    """Return, for each place, the number of its first update (-1 for none), of its second, and so on."""
    layers: list[np.ndarray] = []
    seen = np.zeros(size, np.int64)
    for number, place in enumerate(places):
        if place < 0:
            continue
        if seen[place] == len(layers):
            layers.append(np.full(size, -1, np.int64))
        layers[seen[place]][place] = number
        seen[place] += 1
    return layers or [np.full(size, -1, np.int64)]


def _keeps_last(node: Node) -> bool:
    function = node.graphs["to_apply"]
    return function.results == function.parameters[1:]


def _last(layers: list[np.ndarray]) -> np.ndarray:
    last = layers[0]
    for layer in layers[1:]:
        last = np.where(layer >= 0, layer, last)
    return last


def _selected(builder: Builder, node: Node, form: RowScatter, layers: list[np.ndarray]) -> int:
    operand, updates = builder[node.operands[0]].tensor, builder[node.operands[2]].tensor
    order = (*form.targets, *form.rest)
    sizes = tuple(operand.dims[d] for d in form.rest)
    transposed = TensorType(operand.dtype, tuple(operand.dims[d] for d in order))
    flat = TensorType(operand.dtype, (len(layers[0]), *sizes))
    value = builder.derive(node, "transpose", transposed, [node.operands[0]], {"dimensions": order})
    value = builder.derive(node, "reshape", flat, [value])
    remaining = sorted(form.update)
    small = TensorType(updates.dtype, tuple(updates.dims[d] for d in remaining))
    update = builder.derive(node, "reshape", small, [node.operands[2]])
    by_count = tuple(remaining.index(d) for d in form.update)
    lined = TensorType(updates.dtype, tuple(small.dims[d] for d in by_count))
    update = builder.derive(node, "transpose", lined, [update], {"dimensions": by_count})
    for layer in layers:
        value = _with_layer(builder, node, value, update, layer)
    value = builder.derive(node, "reshape", transposed, [value])
    back = tuple(order.index(d) for d in range(len(order)))
    return builder.derive(node, "transpose", node.type, [value], {"dimensions": back})


def _with_layer(builder: Builder, node: Node, value: int, update: int, layer: np.ndarray) -> int:
    """Return ``value`` after at most one update of each place."""
    dims, dtype = builder[value].tensor.dims, builder[update].tensor.dtype
    table = builder.constant(node, "s32", np.maximum(layer, 0).astype(ELEMENT_TYPES["s32"].numpy)[:, None])
    numbers = {
        "offset_dims": tuple(range(1, len(dims))),
        "collapsed_slice_dims": (0,),
        "start_index_map": (0,),
        "index_vector_dim": 1,
        "slice_sizes": (1, *dims[1:]),
    }
    looked_up = builder.derive(node, "gather", TensorType(dtype, dims), [update, table], numbers)
    touched = builder.constant(node, "pred", layer >= 0)
    mask = builder.derive(node, "broadcast", TensorType("pred", dims), [touched], {"dimensions": (0,)})
    combined = apply_elementwise(builder, node, node.graphs["to_apply"], [value, looked_up], dims)
    return builder.derive(node, "select", TensorType(builder[value].tensor.dtype, dims), [mask, combined, value])
