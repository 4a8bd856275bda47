"""``reduce-window`` whose windows tile the array: an ordinary reduction."""

from __future__ import annotations

from ..builder import Builder
from ..combiners import is_neutral
from ..model import Node, TensorType


def tile_window(builder: Builder, node: Node) -> int | None:
    """Reduce disjoint windows that cover everything: pad with the neutral value, split each dimension, reduce."""
    if node.op != "reduce-window" or len(node.operands) != 2 or not isinstance(node.type, TensorType):
        return None
    window, source, initial = node.attributes["window"].dims, builder[node.operands[0]].tensor, node.operands[1]
    padded = [size + d.pad_low + d.pad_high for size, d in zip(source.dims, window, strict=True)]
    for size, d in zip(padded, window, strict=True):
        if d.stride != d.size or d.base_dilation != 1 or d.window_dilation != 1 or min(d.pad_low, d.pad_high) < 0:
            return None
        if size % d.size:
            return None
    padding = tuple((d.pad_low, d.pad_high, 0) for d in window)
    if any(p != (0, 0, 0) for p in padding) and not is_neutral(node.graphs["to_apply"], builder[initial]):
        return None  # reduce-window skips what it pads with
    type_ = TensorType(source.dtype, tuple(padded))
    value = builder.derive(node, "pad", type_, [node.operands[0], initial], {"padding": padding})
    split: list[int] = []
    reduced: list[int] = []
    for size, d in zip(padded, window, strict=True):
        split.append(size // d.size)
        if d.size > 1:
            reduced.append(len(split))
            split.append(d.size)
    value = builder.derive(node, "reshape", TensorType(source.dtype, tuple(split)), [value])
    return builder.derive(node, "reduce", node.type, [value, initial], {"dimensions": tuple(reduced)}, node.graphs)
