"""Small convolutions written out as matrix products of slices, on a CPU: there products of any size that stays in the
cache are part of straight code, with what makes their operands and reads their results, and XLA's convolution takes
longer to begin than to do its work.

Of a layer each place of the window is a product, and these are added up. Of the gradient of its weights the window is
as large as the layer and there are few results: each is a product over the whole window.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from hlo_parser import ConvDimensionNumbers, WindowDim
from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.devices import Device
from jax_stitch.graph.builder import Builder, freeze
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.util.values import replace

MOST_PRODUCTS = 16
"""Products that a convolution is written out as."""

MOST_MULTIPLICATIONS = 1 << 26
"""The most multiplications of a convolution that is written out. Measured on two cores: up to these, products are 1.1
to 3.5 times as fast as XLA's convolution; beyond, as fast.
"""

NODES_EACH = 5
"""Operations for each product."""


def growth_of_convolution(graph: Graph, node: Node, device: Device) -> int | None:
    """Return by how many nodes a graph grows if a convolution is written out; ``None`` for one that is not."""
    if not device.target.runs_sweeps_in_turn or len(node.operands) != 2:
        return None
    types = {graph[o].tensor.dtype for o in node.operands} | {node.tensor.dtype}
    window, labels = _window(node), node.attributes["dim_labels"]
    groups = max(node.attributes.get(name, 1) for name in ("feature_group_count", "batch_group_count"))
    if types not in ({"f32"}, {"f64"}) or groups > 1 or any(d.base_dilation > 1 for d in window):
        return None
    features = graph[node.operands[1]].tensor.dims[labels.kernel_input_feature]
    multiplications = node.tensor.size * features * prod(d.size for d in window)
    count = min(prod(d.size for d in window), prod(node.tensor.dims[d] for d in labels.output_spatial))
    if not 0 < count <= MOST_PRODUCTS or not 0 < multiplications <= MOST_MULTIPLICATIONS:
        return None
    return count * NODES_EACH


def convolution_written_out(builder: Builder, node: Node) -> int:
    """Return one of these convolutions, whose operands are in the builder, as products."""
    node = _as_it_lies(builder, node)
    labels: ConvDimensionNumbers = node.attributes["dim_labels"]
    window = _window(node)
    places = [node.tensor.dims[d] for d in labels.output_spatial]
    padded = _padded(builder, node, window)
    if prod(d.size for d in window) <= prod(places):
        return _by_place_of_window(builder, node, padded, places)
    return _by_result(builder, node, padded, places)


def _as_it_lies(builder: Builder, node: Node) -> Node:
    """Return the same convolution of what its operands are transposes of; but neighbouring output features are
    neighbours in the kernel, so that vectors go along them, and it is the kernel that is reversed, if anything is.
    """
    labels: ConvDimensionNumbers = node.attributes["dim_labels"]
    source, kernel = node.operands
    while builder[source].op == "transpose":
        order = builder[source].attributes["dimensions"]
        labels = replace(
            labels,
            input_batch=order[labels.input_batch],
            input_feature=order[labels.input_feature],
            input_spatial=tuple(order[d] for d in labels.input_spatial),
        )
        source = builder[source].operands[0]
    while builder[kernel].op == "transpose":
        labels = _of_kernel(labels, builder[kernel].attributes["dimensions"])
        kernel = builder[kernel].operands[0]
    if labels.kernel_output_feature != labels.kernel_rank - 1:
        type_ = builder[kernel].tensor
        others = (*labels.kernel_spatial, labels.kernel_input_feature)
        order = (*others, labels.kernel_output_feature)
        turned = TensorType(type_.dtype, tuple(type_.dims[d] for d in order))
        kernel = builder.derive(node, "transpose", turned, [kernel], {"dimensions": order})
        labels = _of_kernel(labels, [order.index(d) for d in range(len(order))])
    backwards = tuple(d for d, w in zip(labels.kernel_spatial, _window(node), strict=True) if w.reversed)
    if backwards:
        kernel = builder.derive(node, "reverse", builder[kernel].tensor, [kernel], {"dimensions": backwards})
    attributes = freeze({**node.attributes, "dim_labels": labels})
    return replace(node, operands=(source, kernel), attributes=attributes)


def _of_kernel(labels: ConvDimensionNumbers, order: Sequence[int]) -> ConvDimensionNumbers:
    """Return the window with the kernel's dimension ``d`` in the place ``order[d]``."""
    return replace(
        labels,
        kernel_input_feature=order[labels.kernel_input_feature],
        kernel_output_feature=order[labels.kernel_output_feature],
        kernel_spatial=tuple(order[d] for d in labels.kernel_spatial),
    )


def _window(node: Node) -> tuple[WindowDim, ...]:
    window: tuple[WindowDim, ...] = node.attributes["window"].dims if "window" in node.attributes else ()
    return window


def _padded(builder: Builder, node: Node, window: Sequence[WindowDim]) -> int:
    """Return the input with zeros around it."""
    source = builder[node.operands[0]].tensor
    padding = [(0, 0, 0)] * len(source.dims)
    for d, w in zip(node.attributes["dim_labels"].input_spatial, window, strict=True):
        padding[d] = (w.pad_low, w.pad_high, 0)
    if not any(map(any, padding)):
        return node.operands[0]
    zero = builder.constant(node, source.dtype, np.zeros((), ELEMENT_TYPES[source.dtype].numpy))
    dims = tuple(size + low + high for size, (low, high, _) in zip(source.dims, padding, strict=True))
    operands = [node.operands[0], zero]
    return builder.derive(node, "pad", TensorType(source.dtype, dims), operands, {"padding": tuple(padding)})


def _by_place_of_window(builder: Builder, node: Node, padded: int, places: Sequence[int]) -> int:
    """Return the sum over the window's places of each one's product with all that it meets."""
    labels: ConvDimensionNumbers = node.attributes["dim_labels"]
    window = _window(node)
    total: int | None = None
    for at in product(*(range(w.size) for w in window)):
        starts = [t * w.window_dilation for t, w in zip(at, window, strict=True)]
        met = _cut(builder, node, padded, labels.input_spatial, starts, [w.stride for w in window], places)
        weights = _cut(builder, node, node.operands[1], labels.kernel_spatial, at, [1] * len(at), [1] * len(at))
        own = _without(builder, node, weights, labels.kernel_spatial)
        features = int(labels.kernel_input_feature > labels.kernel_output_feature)
        one = _dot(builder, node, met, own, (labels.input_feature,), (features,))
        total = one if total is None else builder.derive(node, "add", builder[one].tensor, [total, one])
    assert total is not None
    kept = [d for d in range(labels.input_rank) if d != labels.input_feature]
    at_output = {labels.input_batch: labels.output_batch}
    at_output |= dict(zip(labels.input_spatial, labels.output_spatial, strict=True))
    return _turned(builder, node, total, [*(at_output[d] for d in kept), labels.output_feature])


def _by_result(builder: Builder, node: Node, padded: int, places: Sequence[int]) -> int:
    """Return each place of the result by itself, as one product over the window and the features."""
    labels: ConvDimensionNumbers = node.attributes["dim_labels"]
    window = _window(node)
    of_kernel = dict(zip(labels.input_spatial, labels.kernel_spatial, strict=True))
    of_kernel[labels.input_feature] = labels.kernel_input_feature
    over = sorted(of_kernel)
    ones: list[int] = []
    for at in product(*map(range, places)):
        starts = [p * w.stride for p, w in zip(at, window, strict=True)]
        steps, sizes = [w.window_dilation for w in window], [w.size for w in window]
        met = _cut(builder, node, padded, labels.input_spatial, starts, steps, sizes)
        one = _dot(builder, node, met, node.operands[1], over, [of_kernel[d] for d in over])
        type_ = builder[one].tensor
        ones.append(builder.derive(node, "reshape", TensorType(type_.dtype, (1, *type_.dims)), [one]))
    batch, features = builder[ones[0]].tensor.dims[1:]
    dtype = node.tensor.dtype
    whole = TensorType(dtype, (len(ones), batch, features))
    joined = builder.derive(node, "concatenate", whole, ones, {"dimensions": (0,)}) if len(ones) > 1 else ones[0]
    spread = builder.derive(node, "reshape", TensorType(dtype, (*places, batch, features)), [joined])
    return _turned(builder, node, spread, [*labels.output_spatial, labels.output_batch, labels.output_feature])


def _cut(
    builder: Builder,
    node: Node,
    source: int,
    along: Sequence[int],
    starts: Sequence[int],
    steps: Sequence[int],
    sizes: Sequence[int],
) -> int:
    """Return a slice: along some dimensions so many places from a start on, a step apart."""
    type_ = builder[source].tensor
    bounds = [(0, size, 1) for size in type_.dims]
    for d, start, step, size in zip(along, starts, steps, sizes, strict=True):
        bounds[d] = (start, start + (size - 1) * step + 1, step)
    dims = tuple(-(-(end - start) // step) for start, end, step in bounds)
    if dims == type_.dims:
        return source
    return builder.derive(node, "slice", TensorType(type_.dtype, dims), [source], {"slice": tuple(bounds)})


def _without(builder: Builder, node: Node, source: int, gone: Sequence[int]) -> int:
    """Return an array without dimensions of size 1."""
    type_ = builder[source].tensor
    dims = tuple(size for d, size in enumerate(type_.dims) if d not in gone)
    return builder.derive(node, "reshape", TensorType(type_.dtype, dims), [source]) if gone else source


def _dot(builder: Builder, node: Node, left: int, right: int, over: Sequence[int], with_: Sequence[int]) -> int:
    """Return the product over dimensions of the left side, each with one of the right side."""
    sides = [builder[i].tensor.dims for i in (left, right)]
    free = [
        [size for d, size in enumerate(dims) if d not in gone] for dims, gone in zip(sides, (over, with_), strict=True)
    ]
    attributes = {"lhs_contracting_dims": tuple(over), "rhs_contracting_dims": tuple(with_)}
    if "operand_precision" in node.attributes:
        attributes["operand_precision"] = node.attributes["operand_precision"]
    type_ = TensorType(node.tensor.dtype, (*free[0], *free[1]))
    return builder.derive(node, "dot", type_, [left, right], attributes)


def _turned(builder: Builder, node: Node, value: int, places: Sequence[int]) -> int:
    """Return the convolution's result, of which dimension ``places[k]`` is dimension ``k`` of a value."""
    order = tuple(places.index(d) for d in range(len(places)))
    if order == tuple(range(len(order))):
        return value
    return builder.derive(node, "transpose", node.tensor, [value], {"dimensions": order})
