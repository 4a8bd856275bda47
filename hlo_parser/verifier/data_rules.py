"""Rules of operations that move, pick and arrange data."""

from __future__ import annotations

import math

from ..dtypes import ELEMENT_TYPES
from ..shapes import ArrayShape, TokenShape, TupleShape
from .rules import Operation, parameters, rule


def _bits(shape: ArrayShape) -> int:
    return shape.size * ELEMENT_TYPES[shape.dtype].bits


@rule("constant")
def _constant(op: Operation) -> None:
    literal = op.instruction.literal
    op.require(literal is not None, "a constant needs a literal")
    assert literal is not None
    op.require(literal.shape == op.instruction.shape, f"the literal has shape {literal.shape}")


@rule("iota")
def _iota(op: Operation) -> None:
    op.check_axes((op.get("iota_dimension"),), op.array_result.rank, "iota_dimension")


@rule("broadcast")
def _broadcast(op: Operation) -> None:
    x, dimensions, out = op.array(0), op.get("dimensions", ()), op.array_result  # A scalar has none.
    op.require(len(dimensions) == x.rank, f"dimensions {dimensions} must name one for each of the operand's {x.rank}")
    op.check_axes(dimensions, out.rank, "dimensions")
    op.require(list(dimensions) == sorted(dimensions), f"dimensions {dimensions} must be in rising order")
    op.require(out.dtype == x.dtype, f"the result should be of type {x.dtype}, not {out.dtype}")
    for n, d in enumerate(dimensions):
        fits = out.dims[d] == x.dims[n]
        op.require(fits, f"dimension {d} of the result is {out.dims[d]}, the operand's {n} is {x.dims[n]}")


@rule("transpose")
def _transpose(op: Operation) -> None:
    x, order = op.array(0), op.get("dimensions")
    op.require(sorted(order) == list(range(x.rank)), f"dimensions {order} are no permutation of {x.rank}")
    op.expect_dims(tuple(x.dims[d] for d in order), x.dtype)


@rule("reshape", "dynamic-reshape")
def _reshape(op: Operation) -> None:
    x, out = op.array(0), op.array_result
    op.require(x.dtype == out.dtype and x.size == out.size, f"{x} cannot be reshaped to {out}")


@rule("bitcast")
def _bitcast(op: Operation) -> None:
    if isinstance(op.operands[0], ArrayShape):
        x, out = op.array(0), op.array_result
        op.require(_bits(x) == _bits(out), f"{x} and {out} differ in size")
    else:
        op.expect_result(op.operands[0])


@rule("bitcast-convert")
def _bitcast_convert(op: Operation) -> None:
    x, out = op.array(0), op.array_result
    source, target = ELEMENT_TYPES[x.dtype].bits, ELEMENT_TYPES[out.dtype].bits
    if source == target:
        op.expect_dims(x.dims)
    elif source > target:
        op.expect_dims((*x.dims, source // target))
    else:
        op.require(x.dims[-1:] == (target // source,), f"the last dimension of {x} should be {target // source}")
        op.expect_dims(x.dims[:-1])


@rule("copy", "opt-barrier", "domain", "add-dependency")
def _same(op: Operation) -> None:
    op.expect_result(op.operands[0])


@rule("after-all")
def _after_all(op: Operation) -> None:
    op.expect_result(TokenShape())


@rule("tuple")
def _tuple(op: Operation) -> None:
    op.expect_result(TupleShape(op.operands))


@rule("get-tuple-element")
def _get_tuple_element(op: Operation) -> None:
    x, index = op.operands[0], op.get("index")
    if not isinstance(x, TupleShape):
        op.fail(f"the operand must be a tuple, not {x}")
    op.require(0 <= index < len(x.elements), f"index {index} is not below {len(x.elements)}")
    op.expect_result(x.elements[index])


@rule("concatenate")
def _concatenate(op: Operation) -> None:
    arrays, axes = op.arrays(), op.get("dimensions")
    first = arrays[0]
    op.require(len(axes) == 1, f"dimensions {axes} must name one")
    op.check_axes(axes, first.rank, "dimensions")
    (axis,) = axes
    for n, shape in enumerate(arrays):
        others = (*shape.dims[:axis], first.dims[axis], *shape.dims[axis + 1 :])
        fits = shape.dtype == first.dtype and others == first.dims
        op.require(fits, f"operand {n}, {shape}, does not fit operand 0, {first}")
    op.expect_dims((*first.dims[:axis], sum(s.dims[axis] for s in arrays), *first.dims[axis + 1 :]), first.dtype)


@rule("slice")
def _slice(op: Operation) -> None:
    x, ranges = op.array(0), op.get("slice")
    op.require(len(ranges) == x.rank, f"{len(ranges)} ranges for rank {x.rank}")
    for n, (start, limit, step) in enumerate(ranges):
        fits = 0 <= start <= limit <= x.dims[n] and step > 0
        op.require(fits, f"range [{start}:{limit}:{step}] does not fit dimension {n} of {x}")
    op.expect_dims(tuple(-(-(limit - start) // step) for start, limit, step in ranges), x.dtype)


@rule("pad")
def _pad(op: Operation) -> None:
    x, value = op.arrays()
    padding = op.get("padding")
    op.require(value == ArrayShape(x.dtype, ()), f"the padding value should be {x.dtype}[], not {value}")
    op.require(len(padding) == x.rank, f"padding for {len(padding)} dimensions, not {x.rank}")
    op.require(all(p[2] >= 0 for p in padding), "interior padding cannot be negative")
    sizes = [low + d + max(d - 1, 0) * inner + high for d, (low, high, inner) in zip(x.dims, padding, strict=True)]
    op.require(min(sizes, default=0) >= 0, f"padding {padding} takes away more than {x} has")
    op.expect_dims(tuple(sizes), x.dtype)


@rule("reverse")
def _reverse(op: Operation) -> None:
    x = op.array(0)
    op.check_axes(op.get("dimensions"), x.rank, "dimensions")
    op.expect_result(x)


@rule("shuffle")
def _shuffle(op: Operation) -> None:
    """Check elements that change places along dimensions: rotated, each dimension by a number of places of its own."""
    x, dimensions, mode = op.array(0), op.get("dimensions"), op.get("mode")
    op.check_axes(dimensions, x.rank, "dimensions")
    op.require(bool(dimensions), "a shuffle must shuffle at least one dimension")
    op.require(mode == "rotate", f"the mode of a shuffle is rotate, not {mode}")
    shifts = op.get("shifts", ())
    op.require(len(shifts) == len(dimensions), f"{len(shifts)} shifts for {len(dimensions)} dimensions")
    op.expect_result(x)


def _check_starts(op: Operation, first: int, rank: int) -> None:
    """Start indices: a scalar for each dimension, or one vector of them."""
    starts = op.arrays()[first:]
    op.require(all(ELEMENT_TYPES[s.dtype].kind == "int" for s in starts), "start indices must be integers")
    vector = len(starts) == 1 and starts[0].dims == (rank,)
    scalars = len(starts) == rank and all(s.rank == 0 for s in starts)
    op.require(vector or scalars, f"needs {rank} scalar start indices, or a vector of {rank}")


@rule("dynamic-slice")
def _dynamic_slice(op: Operation) -> None:
    x, sizes = op.array(0), op.get("dynamic_slice_sizes")
    _check_starts(op, 1, x.rank)
    fits = len(sizes) == x.rank and all(0 <= n <= d for n, d in zip(sizes, x.dims, strict=True))
    op.require(fits, f"sizes {sizes} do not fit {x}")
    op.expect_dims(sizes, x.dtype)


@rule("dynamic-update-slice")
def _dynamic_update_slice(op: Operation) -> None:
    x, update = op.array(0), op.array(1)
    _check_starts(op, 2, x.rank)
    fits = update.rank == x.rank and all(n <= d for n, d in zip(update.dims, x.dims, strict=True))
    op.require(fits and update.dtype == x.dtype, f"the update {update} does not fit {x}")
    op.expect_result(x)


def _without(dims: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d for n, d in enumerate(dims) if n not in axes)


def _check_index_type(op: Operation, indices: ArrayShape) -> None:
    op.require(ELEMENT_TYPES[indices.dtype].kind == "int", f"indices must be integers, not {indices}")


def _check_mapping(op: Operation, key: str, x: ArrayShape, indices: ArrayShape, vector: int) -> None:
    """Check which dimension each component of an index is for."""
    components = indices.dims[vector] if vector < indices.rank else 1
    mapped = op.get(key)
    op.check_axes(mapped, x.rank, key)
    op.require(len(mapped) == components, f"{key} {mapped} does not match {components} index components")


def _check_batching(
    op: Operation, x: ArrayShape, indices: ArrayShape, mine: tuple[int, ...], theirs: tuple[int, ...], vector: int
) -> None:
    """Check the dimensions that operand and indices share."""
    op.require(len(mine) == len(theirs), f"batching dimensions {mine} and {theirs} differ in number")
    op.check_axes(theirs, indices.rank, "batching dimensions of the indices")
    op.require(vector not in theirs, f"index_vector_dim {vector} cannot be a batching dimension")
    sizes = tuple(x.dims[d] for d in mine), tuple(indices.dims[d] for d in theirs)
    op.require(sizes[0] == sizes[1], f"the batching dimensions have sizes {sizes[0]} and {sizes[1]}")


@rule("gather")
def _gather(op: Operation) -> None:
    x, indices = op.arrays()
    sizes, offsets = op.get("slice_sizes"), op.get("offset_dims")
    collapsed, batching = op.get("collapsed_slice_dims"), op.get("operand_batching_dims", ())
    dropped = collapsed + batching
    vector = op.get("index_vector_dim")
    op.require(len(sizes) == x.rank, f"slice_sizes {sizes} must have one for each of the operand's {x.rank} dimensions")
    op.require(all(0 <= n <= d for n, d in zip(sizes, x.dims, strict=True)), f"slice_sizes {sizes} exceed {x}")
    op.require(0 <= vector <= indices.rank, f"index_vector_dim {vector} exceeds the rank of {indices}")
    op.check_axes(dropped, x.rank, "collapsed and batching dimensions")
    _check_index_type(op, indices)
    _check_mapping(op, "start_index_map", x, indices, vector)
    for what, axes in (("offset_dims", offsets), ("collapsed_slice_dims", collapsed)):
        op.require(list(axes) == sorted(axes), f"{what} {axes} must be in rising order")
    wide = [d for d in dropped if sizes[d] > 1]
    op.require(not wide, f"slice_sizes {sizes} must be at most 1 in the collapsed and batching dimensions {wide}")
    _check_batching(op, x, indices, batching, op.get("start_indices_batching_dims", ()), vector)
    window = list(_without(sizes, dropped))
    op.require(len(window) == len(offsets), f"offset_dims {offsets} must name {len(window)} window dimensions")
    batch = list(_without(indices.dims, (vector,)))
    rank = len(window) + len(batch)
    op.check_axes(offsets, rank, "offset_dims")
    op.expect_dims(tuple(window.pop(0) if n in offsets else batch.pop(0) for n in range(rank)), x.dtype)


@rule("scatter")
def _scatter(op: Operation) -> None:
    arrays = op.arrays()
    count = len(arrays) // 2
    op.require(len(arrays) == 2 * count + 1, "scatter takes inputs, one array of indices and as many updates as inputs")
    inputs, indices, updates = arrays[:count], arrays[count], arrays[count + 1 :]
    vector = op.get("index_vector_dim")
    op.require(0 <= vector <= indices.rank, f"index_vector_dim {vector} exceeds the rank of {indices}")
    window = op.get("update_window_dims")
    inserted, batching = op.get("inserted_window_dims"), op.get("input_batching_dims", ())
    dropped = inserted + batching
    op.check_axes(dropped, inputs[0].rank, "inserted and batching dimensions")
    _check_index_type(op, indices)
    _check_mapping(op, "scatter_dims_to_operand_dims", inputs[0], indices, vector)
    for what, axes in (("update_window_dims", window), ("inserted_window_dims", inserted)):
        op.require(list(axes) == sorted(axes), f"{what} {axes} must be in rising order")
    _check_batching(op, inputs[0], indices, batching, op.get("scatter_indices_batching_dims", ()), vector)
    scalars = tuple(ArrayShape(x.dtype, ()) for x in inputs)
    given = parameters(op.called("to_apply"))
    op.require(given == scalars + scalars, f"to_apply should have the parameters {scalars + scalars}, not {given}")
    batch = _without(indices.dims, (vector,))
    for x, update in zip(inputs, updates, strict=True):
        op.require(x.dims == inputs[0].dims, f"the inputs {x} and {inputs[0]} differ in dimensions")
        op.require(update.dtype == x.dtype, f"the update {update} differs in type from {x}")
        op.check_axes(window, update.rank, "update_window_dims")
        op.require(_without(update.dims, window) == batch, f"the update {update} does not match the indices {indices}")
        limits = _without(x.dims, dropped)
        sizes = tuple(update.dims[d] for d in window)
        fits = len(sizes) == len(limits) and all(n <= d for n, d in zip(sizes, limits, strict=True))
        op.require(fits, f"the update's windows {sizes} do not fit {x}")
    op.expect_results(inputs)


@rule("get-dimension-size")
def _get_dimension_size(op: Operation) -> None:
    op.check_axes(op.get("dimensions"), op.array(0).rank, "dimensions")
    op.expect_result(ArrayShape("s32", ()))


@rule("partition-id", "replica-id")
def _device_number(op: Operation) -> None:
    op.expect_result(ArrayShape("u32", ()))


@rule("topk")
def _topk(op: Operation) -> None:
    x, k = op.array(0), op.get("k")
    op.require(x.rank > 0 and 0 <= k <= x.dims[-1], f"k={k} exceeds the last dimension of {x}")
    dims = (*x.dims[:-1], k)
    op.expect_result(TupleShape((ArrayShape(x.dtype, dims), ArrayShape("s32", dims))))


@rule("rng")
def _rng(op: Operation) -> None:
    out = op.array_result
    op.require(len(op.operands) == 2, f"rng has 2 operands, not {len(op.operands)}")
    for n, shape in enumerate(op.arrays()):
        op.require(shape.rank == 0, f"operand {n} must be a scalar, not {shape}")
        op.require(shape.dtype == out.dtype, f"operand {n} is {shape.dtype}, the result {out.dtype}")
    kind = ELEMENT_TYPES[out.dtype].kind
    takes = ("float", "complex") if op.get("distribution") == "rng_normal" else ("float", "int", "pred")
    op.require(kind in takes, f"{op.get('distribution')} does not make {out.dtype}")


@rule("rng-bit-generator")
def _rng_bit_generator(op: Operation) -> None:
    out = op.result
    pair = isinstance(out, TupleShape) and len(out.elements) == 2 and out.elements[0] == op.array(0)
    op.require(pair, f"the result should be ({op.array(0)}, bits), not {out}")


@rule("rng-get-and-update-state")
def _rng_state(op: Operation) -> None:
    op.require(math.prod(op.array_result.dims) == 2, f"the state should be u64[2], not {op.result}")
