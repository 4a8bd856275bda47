"""``select-and-scatter``, the gradient of max pooling, as a gather.

Each window notes which of its elements it chose, as a number. An element of the result then adds up the sources of the
windows that cover it, in order, where its own place in the window is that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import CALLS
from jax_stitch.fusion.rewrites.window_combiners import as_type, named, wide_combiner
from jax_stitch.fusion.rewrites.window_slots import Along, combined_along, covering, filled, in_slot, made_ready, phases
from jax_stitch.graph.builder import Builder
from jax_stitch.graph.maps import apply_elementwise
from jax_stitch.graph.model import Node, TensorType


def gradient_along(source: TensorType, node: Node) -> list[Along]:
    """Return, for each dimension, the windows of a ``select-and-scatter`` that cover a place of its result."""
    window = node.attributes["window"].dims
    return [
        covering(count, w.size, w.stride, w.pad_low, places)
        for w, count, places in zip(window, source.dims, node.tensor.dims, strict=True)
    ]


def gathered(builder: Builder, node: Node, device: Device) -> int:
    """Return a ``select-and-scatter`` of undilated windows, as elementwise operations."""
    _, source, initial = node.operands
    along, dims = gradient_along(builder[source].tensor, node), node.tensor.dims
    weights = _weights(along)
    nothing = prod(len(a.starts) * a.spacing for a in along)
    choice = _choice(builder, node, weights, nothing)
    adds, (wide, _) = wide_combiner(named(node.graphs["scatter"], node.name), [node.tensor.dtype] * 2)
    none = builder.constant(node, builder[choice].tensor.dtype, np.array(nothing, _numpy(nothing)))
    choices = made_ready(builder, node, choice, along, none)
    sources = made_ready(builder, node, source, along, initial)
    phase = _phase(builder, node, along, weights)
    start = as_type(builder, node, initial, wide)
    total = builder.derive(node, "broadcast", TensorType(wide, dims), [start], {"dimensions": ()})
    calls = _more_calls(builder, node, device)
    for slots in product(*(range(len(a.starts)) for a in along)):
        at = sum(a.offset(k) * weight for a, k, weight in zip(along, slots, weights, strict=True))
        own = filled(builder, node, "s32", dims, np.array(at, np.int32))
        if phase is not None:
            own = builder.derive(node, "add", TensorType("s32", dims), [phase, own])
        chosen = in_slot(builder, node, choices, along, slots)
        chosen = as_type(builder, node, chosen, "s32")
        mask = builder.derive(node, "compare", TensorType("pred", dims), [chosen, own], {"direction": "EQ"})
        value = as_type(builder, node, in_slot(builder, node, sources, along, slots), wide)
        added = apply_elementwise(builder, node, adds, [total, value], dims)
        said = {} if any(slots) else {CALLS: calls}
        total = builder.derive(node, "select", TensorType(wide, dims), [mask, added, total], said)
    return as_type(builder, node, total, node.tensor.dtype)


def _more_calls(builder: Builder, node: Node, device: Device) -> int:
    """Return the launches that last as long as XLA's kernels for a ``select-and-scatter``, beyond one: it fills the
    result, then writes a window's choice as an index of 32 bits for each dimension, and a third kernel adds to what it
    filled.
    """
    operand, source, _ = (builder[o] for o in node.operands)
    indices = 4 * len(node.tensor.dims) * source.tensor.size
    moved = 2 * indices + node_bytes(operand) + 2 * node_bytes(node)
    return 2 + round(moved / device.memory_bandwidth / device.target.launch_seconds)


def _choice(builder: Builder, node: Node, weights: Sequence[int], nothing: int) -> int:
    """Return, for each window, the number of the element it chose: as XLA does, the first, and then another one where
    ``select`` of the last choice and that is false. It is ``nothing`` where the window has no element.
    """
    operand, source, initial = node.operands
    window, source_dims = node.attributes["window"].dims, builder[source].tensor.dims
    sizes = builder[operand].tensor.dims
    along = [combined_along(w, n, places) for w, n, places in zip(window, sizes, source_dims, strict=True)]
    flag, number = TensorType("pred", source_dims), TensorType("s32", source_dims)
    ready, inside = made_ready(builder, node, operand, along, initial), None
    if any(a.padding != (0, 0, 0) for a in along):
        everywhere = filled(builder, node, "pred", sizes, np.array(True))
        inside = made_ready(builder, node, everywhere, along, builder.constant(node, "pred", np.array(False)))
    picks = named(node.graphs["select"], node.name)
    best = choice = -1
    none = filled(builder, node, "s32", source_dims, np.array(nothing, np.int32))
    for slots in product(*(range(len(a.starts)) for a in along)):
        at = sum(k * weight for k, weight in zip(slots, weights, strict=True))
        value = in_slot(builder, node, ready, along, slots)
        here = filled(builder, node, "s32", source_dims, np.array(at, np.int32))
        there = None if inside is None else in_slot(builder, node, inside, along, slots)
        if best < 0:
            best, choice = value, here
            if there is not None:
                choice = builder.derive(node, "select", number, [there, here, none])
            continue
        keep = apply_elementwise(builder, node, picks, [best, value], source_dims)
        if there is not None:
            known = builder.derive(node, "compare", flag, [choice, none], {"direction": "NE"})
            keep = builder.derive(node, "and", flag, [keep, known])
            outside = builder.derive(node, "not", flag, [there])
            keep = builder.derive(node, "or", flag, [keep, outside])
        best = builder.derive(node, "select", builder[best].type, [keep, best, value])
        choice = builder.derive(node, "select", number, [keep, choice, here])
    return as_type(builder, node, choice, "u8" if _numpy(nothing) is np.uint8 else "s32")


def _numpy(nothing: int) -> type:
    return np.uint8 if nothing < 256 else np.int32


def _weights(along: Sequence[Along]) -> list[int]:
    """Return what a step along each dimension of a window counts, so that places beyond its end have numbers of
    their own.
    """
    spans = [len(a.starts) * a.spacing for a in along]
    return [prod(spans[d + 1 :]) for d in range(len(spans))]


def _phase(builder: Builder, node: Node, along: Sequence[Along], weights: Sequence[int]) -> int | None:
    """Return the numbers of the result's places in the last windows that cover them; ``None`` where all are 0."""
    type_, total = TensorType("s32", node.tensor.dims), None
    for d, (a, weight) in enumerate(zip(along, weights, strict=True)):
        if a.spacing > 1:
            scale = filled(builder, node, "s32", type_.dims, np.array(weight, np.int32))
            term = builder.derive(node, "multiply", type_, [phases(builder, node, along, d), scale])
            total = term if total is None else builder.derive(node, "add", type_, [total, term])
    return total
