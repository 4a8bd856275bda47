"""cuDNN's convolutions, forward and of both gradients, as HLO's.

All three are described by the window and the dimensions of the forward one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hlo_parser import ArrayShape, ConvDimensionNumbers, Instruction, Window, WindowDim

from ..draft import Draft

_GROUPS = ("feature_group_count", "batch_group_count")
_PRECISION = "operand_precision"


def convolution(draft: Draft, target: str, attributes: Mapping[str, Any], out: ArrayShape) -> Instruction | None:
    """Return the convolution that a call to cuDNN does of its first two operands; None for gradients of grouped
    ones.
    """
    labels: ConvDimensionNumbers = attributes["dim_labels"]
    window = attributes.get("window", Window(()))
    kept = {_PRECISION: tuple(attributes[_PRECISION])[:2]} if _PRECISION in attributes else {}  # A call has a bias too.
    groups = {k: attributes[k] for k in _GROUPS if attributes.get(k, 1) != 1}
    if "Backward" not in target:
        given = {"window": window, **groups} if window.dims else {}
        return draft.add("convolution", out, draft.operands[:2], {**given, "dim_labels": labels, **kept})
    if groups or any(d.base_dilation != 1 or d.reversed for d in window.dims):
        return None
    window, labels = (_of_input if target == "__cudnn$convBackwardInput" else _of_filter)(draft, window, labels, out)
    return draft.add("convolution", out, draft.operands[:2], {"window": window, "dim_labels": labels, **kept})


_Described = tuple[Window, ConvDimensionNumbers]


def _of_input(draft: Draft, window: Window, labels: ConvDimensionNumbers, out: ArrayShape) -> _Described:
    """Return the gradient of the input: the kernel reversed, over the other gradient with its strides as gaps."""
    gradient = draft.operands[0].shape
    assert isinstance(gradient, ArrayShape)
    dims = []
    for n, d in enumerate(window.dims):
        width = (d.size - 1) * d.window_dilation + 1
        spread = (gradient.dims[labels.output_spatial[n]] - 1) * d.stride + 1
        low = width - 1 - d.pad_low
        high = out.dims[labels.input_spatial[n]] - spread - low + width - 1
        dims.append(WindowDim(d.size, 1, low, high, d.window_dilation, d.stride, True))
    swapped = replace(
        labels,
        input_batch=labels.output_batch,
        input_feature=labels.output_feature,
        input_spatial=labels.output_spatial,
        input_rank=labels.output_rank,
        kernel_input_feature=labels.kernel_output_feature,
        kernel_output_feature=labels.kernel_input_feature,
        output_batch=labels.input_batch,
        output_feature=labels.input_feature,
        output_spatial=labels.input_spatial,
        output_rank=labels.input_rank,
    )
    return Window(tuple(dims)), swapped


def _of_filter(draft: Draft, window: Window, labels: ConvDimensionNumbers, out: ArrayShape) -> _Described:
    """Return the gradient of the kernel: the other gradient as a kernel over the input, batches taken for features."""
    source, gradient = (o.shape for o in draft.operands[:2])
    assert isinstance(source, ArrayShape) and isinstance(gradient, ArrayShape)
    dims = []
    for n, d in enumerate(window.dims):
        size = gradient.dims[labels.output_spatial[n]]
        width = (size - 1) * d.stride + 1
        steps = (d.size - 1) * d.window_dilation + 1
        high = steps - 1 + width - source.dims[labels.input_spatial[n]] - d.pad_low
        dims.append(WindowDim(size, d.window_dilation, d.pad_low, high, d.stride))
    swapped = replace(
        labels,
        input_batch=labels.input_feature,
        input_feature=labels.input_batch,
        kernel_input_feature=labels.output_batch,
        kernel_output_feature=labels.output_feature,
        kernel_spatial=labels.output_spatial,
        kernel_rank=labels.output_rank,
        output_batch=labels.kernel_input_feature,
        output_feature=labels.kernel_output_feature,
        output_spatial=labels.kernel_spatial,
        output_rank=labels.kernel_rank,
    )
    return Window(tuple(dims)), swapped
