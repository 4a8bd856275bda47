"""Windows that overlap, written out as the combination of their elements, so that they are part of a kernel.

A pooling layer's window is a bounded number of elements of its operand, each a slice of it. Its gradient
(``select-and-scatter``) is a sum over the bounded number of windows that cover an element, each with its cotangent
where the element is what that window chose: no scatter is left, and no atomic. So both are elementwise, and join
whatever makes their operands and reads their results. Windows of many elements stay with XLA. Small convolutions, whose
windows are products, are written out as those (``small_convolutions.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product
from math import prod

import numpy as np

from jax_stitch.analysis.support import DTYPES, MOST_IN_WINDOW
from jax_stitch.devices import Device
from jax_stitch.fusion.rewrites.small_convolutions import convolution_written_out, growth_of_convolution
from jax_stitch.fusion.rewrites.window_combiners import as_type, named, wide_combiner
from jax_stitch.fusion.rewrites.window_gradients import gathered, gradient_along
from jax_stitch.fusion.rewrites.window_slots import Along, combined_along, filled, in_slot, made_ready, phases
from jax_stitch.graph.builder import Builder
from jax_stitch.graph.combiners import is_neutral
from jax_stitch.graph.maps import apply_to_arrays, can_apply, is_elementwise
from jax_stitch.graph.model import Graph, Node, NodeType, TensorType, TupleType
from jax_stitch.graph.scans import scan_of


def windows_growth(graph: Graph, node: Node, device: Device) -> int | None:
    """Return about how many nodes a window takes that is written out; None for one that cannot be, or that a device
    does not do well so, and for other nodes.
    """
    growth = _growth(graph, node, device)
    return growth if growth is not None and _suits(graph, node, device) else None


def window_written_out(builder: Builder, node: Node, device: Device) -> tuple[int, ...]:
    """Add a window or convolution as elementwise operations; ``node`` has its operands in the builder."""
    if node.op == "reduce-window":
        return tuple(_combined(builder, node))
    if node.op == "convolution":
        return (convolution_written_out(builder, node),)
    return (gathered(builder, node, device),)


def _suits(graph: Graph, node: Node, device: Device) -> bool:
    """Return whether a device does a window well that is written out. On a CPU conditions keep a compiler from making
    vectors of a loop: there a window must lie across the fastest dimension, and have a place in each for the same
    elements.
    """
    if not device.target.lanes_are_vectors or node.op == "convolution":
        return True
    if node.op != "reduce-window":
        return False
    *_, last = along = _along(graph[node.operands[0]].tensor, node)
    plain = last.padding == (0, 0, 0) and len(last.starts) == last.stride == 1
    return plain and all(a.spacing == 1 for a in along)


def _growth(graph: Graph, node: Node, device: Device) -> int | None:
    """Return about how many nodes a window written out takes; ``None`` for what cannot be."""
    if node.op == "convolution":
        return growth_of_convolution(graph, node, device)
    if node.op == "reduce-window":
        return _growth_of_reduction(graph, node)
    return _growth_of_gradient(graph, node) if node.op == "select-and-scatter" else None


def _growth_of_reduction(graph: Graph, node: Node) -> int | None:
    combiner, arrays = node.graphs["to_apply"], node.operands[: len(node.operands) // 2]
    if not _are_plain([graph[i].type for i in arrays] + _results(node)) or not is_elementwise(combiner):
        return None
    if any(w.reversed for w in node.attributes["window"].dims) or scan_of(graph, node) is not None:
        return None
    if isinstance(node.type, TupleType):
        if node.id in graph.result_set or any(graph[u].op != "get-tuple-element" for u in graph.users[node.id]):
            return None
    elements = prod(len(a.starts) for a in _along(graph[arrays[0]].tensor, node))
    return elements * (len(combiner.nodes) + len(arrays)) if elements <= MOST_IN_WINDOW else None


def _growth_of_gradient(graph: Graph, node: Node) -> int | None:
    window = node.attributes["window"].dims
    if not _are_plain([graph[o].type for o in node.operands[:2]]) or not all(map(can_apply, node.graphs.values())):
        return None
    if any(w.reversed or w.window_dilation != 1 or w.base_dilation != 1 for w in window):
        return None
    elements = prod(w.size for w in window)
    covers = prod(len(a.starts) for a in gradient_along(graph[node.operands[1]].tensor, node))
    sizes = [len(called.nodes) for called in (node.graphs["select"], node.graphs["scatter"])]
    return elements * (sizes[0] + 3) + covers * (sizes[1] + 4) if elements <= MOST_IN_WINDOW else None


def _results(node: Node) -> list[NodeType]:
    return list(node.type.elements) if isinstance(node.type, TupleType) else [node.type]


def _are_plain(types: Collection[NodeType]) -> bool:
    return all(isinstance(t, TensorType) and t.dtype in DTYPES and t.size > 0 for t in types)


def _along(source: TensorType, node: Node) -> list[Along]:
    (result, *_) = _results(node)
    assert isinstance(result, TensorType)
    window = node.attributes["window"].dims
    return [combined_along(w, size, places) for w, size, places in zip(window, source.dims, result.dims, strict=True)]


def _combined(builder: Builder, node: Node) -> list[int]:
    """Return the results of a ``reduce-window``: from the initial values on, the elements in the window's order."""
    count = len(node.operands) // 2
    arrays, initials = node.operands[:count], node.operands[count:]
    along = _along(builder[arrays[0]].tensor, node)
    dtypes = [builder[a].tensor.dtype for a in arrays]
    combiner, wide = wide_combiner(named(node.graphs["to_apply"], node.name), dtypes)
    dims = tuple(a.places for a in along)
    is_padded = any(a.padding != (0, 0, 0) for a in along)
    skips = is_padded and not (count == 1 and is_neutral(node.graphs["to_apply"], builder[initials[0]]))
    inside = _inside(builder, node, along, builder[arrays[0]].tensor.dims) if skips else None
    ready = [made_ready(builder, node, a, along, i) for a, i in zip(arrays, initials, strict=True)]
    totals = [
        builder.derive(node, "broadcast", TensorType(t, dims), [as_type(builder, node, i, t)], {"dimensions": ()})
        for i, t in zip(initials, wide, strict=True)
    ]
    for slots in product(*(range(len(a.starts)) for a in along)):
        taken = [in_slot(builder, node, r, along, slots) for r in ready]
        taken = [as_type(builder, node, v, t) for v, t in zip(taken, wide, strict=True)]
        combined = apply_to_arrays(builder, node, combiner, [*totals, *taken], dims)
        for mask in _conditions(builder, node, along, slots, inside):
            combined = [
                builder.derive(node, "select", builder[t].type, [mask, f, t])
                for f, t in zip(combined, totals, strict=True)
            ]
        totals = combined
    results = zip(totals, _results(node), strict=True)
    return [as_type(builder, node, i, t.dtype) for i, t in results if isinstance(t, TensorType)]


def _inside(builder: Builder, node: Node, along: list[Along], dims: tuple[int, ...]) -> int:
    """Return whether there is an element, over the places of an array made ready."""
    there = filled(builder, node, "pred", dims, np.array(True))
    return made_ready(builder, node, there, along, builder.constant(node, "pred", np.array(False)))


def _conditions(
    builder: Builder, node: Node, along: list[Along], slots: tuple[int, ...], inside: int | None
) -> Iterator[int]:
    """Return the conditions on which a slot is combined."""
    if inside is not None:
        yield in_slot(builder, node, inside, along, slots)
    dims = tuple(a.places for a in along)
    for d, (a, slot) in enumerate(zip(along, slots, strict=True)):
        if a.spacing > 1 and a.overhangs(slot):
            end = filled(builder, node, "s32", dims, np.array(a.size - a.offset(slot), np.int32))
            at = phases(builder, node, along, d)
            yield builder.derive(node, "compare", TensorType("pred", dims), [at, end], {"direction": "LT"})
