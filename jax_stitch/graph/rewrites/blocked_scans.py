"""Scans that XLA has cut into blocks (its reduce-window rewriter), put back together.

XLA scans blocks of 16 places, scans the blocks' last results, likewise in blocks where they are many, and combines each
block with what came before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct

from hlo_parser import Window, WindowDim

from ..builder import Builder
from ..combiners import application, are_alike, leaves_others
from ..model import Node, TensorType

LARGEST = 32
"""Operations of a combiner that is looked for. That of ``logaddexp`` has 10."""


class _Scan(Struct, frozen=True):
    """A reduce-window along ``dimension`` that starts from a neutral value; ``before`` is 0 where each result has its
    own place's value, 1 where it has those before it alone, and one result more."""

    node: Node
    dimension: int
    backward: bool
    before: int


def join_blocks(builder: Builder, node: Node) -> int | None:
    """Return ``combine(scan within blocks, broadcast(exclusive scan of the blocks' last results))`` as one scan."""
    for inner in _scans_below(builder, node):
        d, dims = inner.dimension, node.tensor.dims
        sides = application(builder, node, inner.node.graphs["to_apply"])
        if sides is None or inner.node.id not in sides or inner.before or d == 0:
            continue
        spread = builder[sides[0] if sides[1] == inner.node.id else sides[1]]
        along = tuple(i for i in range(len(dims)) if i != d)
        if spread.op != "broadcast" or spread.attributes["dimensions"] != along:
            continue
        totals = _exclusive(
            builder, builder[spread.operands[0]], inner, [dims[i] for i in along], math.prod(dims[: d - 1])
        )
        if totals is not None and _are_last(builder, totals, inner):
            return _joined(builder, node, inner)
    return None


def _scans_below(builder: Builder, node: Node) -> Iterator[_Scan]:
    """Yield the scans of the size of ``node`` that it is computed from in few steps, each of that size."""
    if not isinstance(node.type, TensorType):
        return
    seen, waiting = {node.id}, [node]
    while waiting and len(seen) <= LARGEST:
        for o in waiting.pop().operands:
            below = builder[o]
            if o in seen or not isinstance(below.type, TensorType) or below.type.dims != node.type.dims:
                continue
            seen.add(o)
            if (scan := _scan(builder, below)) is not None:
                yield scan
            else:
                waiting.append(below)


def unpad_scan(builder: Builder, node: Node) -> int | None:
    """Return the first places of the scan of what is padded behind with the neutral value; also of its transpose."""
    if node.op != "slice":
        return None
    cut, ranges = builder[node.operands[0]], node.attributes["slice"]
    order = tuple(range(len(ranges)))
    if cut.op == "transpose":
        order, cut = cut.attributes["dimensions"], builder[cut.operands[0]]
    scan = _scan(builder, cut)
    if scan is None or scan.before:
        return None
    padded = builder[scan.node.operands[0]]
    if padded.op != "pad" or padded.operands[1] != scan.node.operands[1]:
        return None
    source = builder[padded.operands[0]]
    ends = [(0, after - before, 0) for before, after in zip(source.tensor.dims, padded.tensor.dims, strict=True)]
    is_first = tuple(ranges) == tuple((0, source.tensor.dims[d], 1) for d in order)
    other = any(e[1] for d, e in enumerate(ends) if d != scan.dimension)
    if list(padded.attributes["padding"]) != ends or not is_first or other:
        return None
    unpadded = _derived(builder, node, scan, source.id, scan.dimension)
    return builder.derive(node, "transpose", node.type, [unpadded], {"dimensions": tuple(order)})


def _scan(builder: Builder, node: Node) -> _Scan | None:
    if node.op != "reduce-window" or len(node.operands) != 2 or not isinstance(node.type, TensorType):
        return None
    dims, window = builder[node.operands[0]].tensor.dims, node.attributes["window"].dims
    long = [d for d, w in enumerate(window) if w.size != 1]
    plain = all(w.stride == w.window_dilation == w.base_dilation == 1 and not w.reversed for w in window)
    if not plain or len(long) != 1 or any(w.pad_low or w.pad_high for w in window if w.size == 1):
        return None
    (d,) = long
    size, w = dims[d], window[d]
    if w.size != size or not leaves_others(node.graphs["to_apply"], builder[node.operands[1]]):
        return None
    for before in (0, 1):
        reach = size - 1 + before
        if (w.pad_low, w.pad_high) in ((reach, 0), (0, reach)):
            return _Scan(node, d, w.pad_low == 0, before)
    return None


def _exclusive(builder: Builder, node: Node, inner: _Scan, dims: Sequence[int], places: int) -> Node | None:
    """Return the value whose exclusive scan ``node``, of these sizes, is; ``places`` are those before the scanned
    dimension. Unit dimensions do not count.
    """
    cut = _unreshaped(builder, node, dims)
    if cut.op != "slice":
        return None
    source, ranges = builder[cut.operands[0]], cut.attributes["slice"]
    first = int(inner.backward)  # The value that nothing comes before is left out, at one end or the other.
    scan = _scan(builder, source)
    if scan is not None and scan.before == 1:
        d = scan.dimension
    elif source.op == "pad" and source.operands[1] == inner.node.operands[1]:
        longer = [d for d, p in enumerate(source.attributes["padding"]) if p != (0, 0, 0)]
        if len(longer) != 1 or source.attributes["padding"][longer[0]] != ((0, 1, 0) if inner.backward else (1, 0, 0)):
            return None
        d = longer[0]
        whole = builder[source.operands[0]]
        scan = _scan(builder, _unreshaped(builder, whole, whole.tensor.dims))
        if scan is None or scan.before:
            return None
    else:
        return None
    size = source.tensor.dims[d] - 1
    wanted = tuple((first, first + size, 1) if i == d else (0, s, 1) for i, s in enumerate(source.tensor.dims))
    alike = scan.backward == inner.backward and are_alike(scan.node.graphs["to_apply"], inner.node.graphs["to_apply"])
    scanned = scan.node.tensor.dims
    if not alike or ranges != wanted or math.prod(scanned[: scan.dimension]) != places:
        return None
    return builder[scan.node.operands[0]]


def _are_last(builder: Builder, totals: Node, inner: _Scan) -> bool:
    """Return whether these are the results at the end of each block."""
    dims, d = inner.node.tensor.dims, inner.dimension
    remaining = [s for i, s in enumerate(dims) if i != d]
    last = _unreshaped(builder, totals, remaining)
    end = 0 if inner.backward else dims[d] - 1
    wanted = tuple((end, end + 1, 1) if i == d else (0, s, 1) for i, s in enumerate(dims))
    return last.op == "slice" and last.operands[0] == inner.node.id and last.attributes["slice"] == wanted


def _unreshaped(builder: Builder, node: Node, dims: Sequence[int]) -> Node:
    """Return the value that ``node`` is a reshape of, if that only adds or removes unit dimensions; else itself."""
    if [s for s in node.tensor.dims if s != 1] != [s for s in dims if s != 1]:
        return node
    while node.op == "reshape":
        source = builder[node.operands[0]]
        if [s for s in source.tensor.dims if s != 1] != [s for s in dims if s != 1]:
            break
        node = source
    return node


def _joined(builder: Builder, node: Node, inner: _Scan) -> int:
    d, dims = inner.dimension, node.tensor.dims
    merged = (*dims[: d - 1], dims[d - 1] * dims[d], *dims[d + 1 :])
    dtype = node.tensor.dtype
    whole = builder.derive(node, "reshape", TensorType(dtype, merged), [inner.node.operands[0]])
    scan = _derived(builder, node, inner, whole, d - 1)
    return builder.derive(node, "reshape", node.type, [scan])


def _derived(builder: Builder, origin: Node, scan: _Scan, source: int, dimension: int) -> int:
    type_ = builder[source].tensor
    size = type_.dims[dimension]
    low, high = (0, size - 1) if scan.backward else (size - 1, 0)
    long = WindowDim(size, pad_low=low, pad_high=high)
    window = Window(tuple(long if d == dimension else WindowDim(1) for d in range(len(type_.dims))))
    operands = [source, scan.node.operands[1]]
    return builder.derive(origin, "reduce-window", type_, operands, {"window": window}, scan.node.graphs)
