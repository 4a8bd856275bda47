"""Rules of operations in which several devices take part."""

from __future__ import annotations

from ..counts import shape_bytes
from ..dtypes import ELEMENT_TYPES
from ..shapes import ArrayShape, Shape, TokenShape, TupleShape, part
from .rules import Operation, rule

_TOKEN = TokenShape()


def _groups(op: Operation) -> tuple[tuple[int, ...], ...]:
    groups = op.get("replica_groups")
    return () if groups is None else groups.groups


def _check_groups(op: Operation, crosses_partitions: bool, uniform: bool = True) -> int:
    """Check who works together; returns how many, or 1 where the module does not say.

    ``crosses_partitions`` says of operations with a channel that they work across partitions instead of replicas.
    """
    channel, flat = op.has("channel_id"), op.get("use_global_device_ids", False)
    op.require(channel or not flat, "use_global_device_ids=true needs channel_id=")
    groups = _groups(op)
    numbers = [n for group in groups for n in group]
    op.require(all(groups), "a group of replica_groups is empty")
    op.require(len(set(numbers)) == len(numbers), "replica_groups name a device twice")
    last = len(numbers) - 1
    op.require(set(numbers) == set(range(last + 1)), f"replica_groups should name the devices 0 to {last}")
    if uniform:
        op.require(len({len(g) for g in groups}) <= 1, "the groups of replica_groups differ in size")
    if flat:
        op.require(bool(groups), "use_global_device_ids=true needs replica_groups")
        count, size = op.replicas * op.partitions, 1
    elif channel and crosses_partitions:
        count, size = op.partitions, op.partitions
    else:
        count, size = op.replicas, op.replicas
    fits = not groups or count == 1 or len(numbers) == count
    op.require(fits, f"replica_groups name {len(numbers)} devices, the module has {count}")
    size = len(groups[0]) if groups else size
    return size * op.partitions if channel and not crosses_partitions and not flat else size


@rule("all-reduce", "all-reduce-start")
def _all_reduce(op: Operation) -> None:
    _check_groups(op, False, uniform=False)
    op.expect_results(op.arrays())


@rule("collective-broadcast")
def _broadcast(op: Operation) -> None:
    _check_groups(op, True)
    op.expect_results(op.arrays())


@rule("all-reduce-done")
def _all_reduce_done(op: Operation) -> None:
    op.expect_result(op.operands[0])


def _check_pairs(op: Operation) -> None:
    pairs = op.get("source_target_pairs")
    op.require(all(len(p) == 2 for p in pairs), "source_target_pairs must be pairs")
    for side, what in ((0, "source"), (1, "target")):
        devices = [p[side] for p in pairs]
        op.require(len(set(devices)) == len(devices), f"source_target_pairs repeat a {what}")
    count = op.partitions if op.has("channel_id") else op.replicas
    wrong = [n for p in pairs for n in p if n < 0 or 1 < count <= n]
    op.require(not wrong, f"source_target_pairs name device {wrong[:1]} of {count}")


@rule("collective-permute")
def _collective_permute(op: Operation) -> None:
    _check_pairs(op)
    if not op.has("slice_sizes"):  # the form that moves slices has four operands
        op.expect_results(op.operands)


@rule("collective-permute-start")
def _collective_permute_start(op: Operation) -> None:
    _check_pairs(op)
    out, x = op.result, op.operands[0] if len(op.operands) == 1 else TupleShape(op.operands)
    pair = isinstance(out, TupleShape) and len(out.elements) >= 2 and out.elements[:2] == (x, x)
    op.require(pair or op.has("slice_sizes"), f"the result should begin with ({x}, {x}), not be {out}")


@rule("collective-permute-done")
def _collective_permute_done(op: Operation) -> None:
    op.expect_result(_part(op, 1))


@rule("copy-start")
def _copy_start(op: Operation) -> None:
    x = op.operands[0]
    op.expect_result(TupleShape((x, x, ArrayShape("u32", ()))))


@rule("copy-done")
def _copy_done(op: Operation) -> None:
    op.expect_result(_part(op, 0))


def _part(op: Operation, index: int) -> Shape:
    x = op.operands[0]
    if not (isinstance(x, TupleShape) and len(x.elements) > index):
        op.fail(f"the operand must be what a start returns, not {x}")
    return x.elements[index]


@rule("all-gather-done")
def _all_gather_done(op: Operation) -> None:
    op.expect_result(_part(op, 1))


def _scaled(op: Operation, out: Shape, grows: bool) -> None:
    """Check all-gather and reduce-scatter: one dimension changes by the number of devices in a group."""
    size = _check_groups(op, False)
    axes = op.get("dimensions")
    op.require(len(axes) == 1, f"dimensions {axes} must name one")
    (axis,) = axes
    results = out.elements if isinstance(out, TupleShape) and len(op.operands) > 1 else (out,)
    op.require(len(results) == len(op.operands), f"{len(results)} results for {len(op.operands)} operands")
    for x, y in zip(op.arrays(), results, strict=True):
        if not isinstance(y, ArrayShape):
            op.fail(f"the result should hold arrays, not {y}")
        op.check_axes(axes, x.rank, "dimensions")
        small, large = (x, y) if grows else (y, x)
        op.require(x.rank == y.rank and x.dtype == y.dtype, f"{x} and {y} differ in rank or type")
        others = (*x.dims[:axis], y.dims[axis], *x.dims[axis + 1 :])
        multiple = large.dims[axis] % small.dims[axis] == 0 if small.dims[axis] else large.dims[axis] == 0
        op.require(others == y.dims, f"{x} and {y} differ in other dimensions than {axis}")
        op.require(multiple, f"dimension {axis} of {large} is no multiple of {small}'s")
        fits = size == 1 or large.dims[axis] == small.dims[axis] * size
        op.require(fits, f"dimension {axis} of {large} should be {size} times that of {small}: so many work together")


@rule("all-gather")
def _all_gather(op: Operation) -> None:
    _scaled(op, op.result, grows=True)


@rule("all-gather-start")
def _all_gather_start(op: Operation) -> None:
    x = op.operands[0] if len(op.operands) == 1 else TupleShape(op.operands)
    out = op.result
    if not (isinstance(out, TupleShape) and len(out.elements) == 2 and out.elements[0] == x):
        op.fail(f"the result should be ({x}, what is gathered), not {out}")
    _scaled(op, out.elements[1], grows=True)


@rule("reduce-scatter")
def _reduce_scatter(op: Operation) -> None:
    _scaled(op, op.result, grows=False)


@rule("all-to-all")
def _all_to_all(op: Operation) -> None:
    size = _check_groups(op, True)
    if op.has("dimensions"):  # one array, whose dimension is split
        (axis,) = op.get("dimensions")
        x = op.array(0)
        op.require(len(op.operands) == 1, f"an all-to-all of a dimension has one operand, not {len(op.operands)}")
        op.check_axes((axis,), x.rank, "dimensions")
        op.require(x.dims[axis] % size == 0, f"dimension {axis} of {x} is no multiple of {size}: so many work together")
        op.expect_result(x)
        return
    op.require(size in (1, len(op.operands)), f"{len(op.operands)} operands for groups of {size}")
    unlike = [x for x in op.arrays() if x != op.array(0)]
    op.require(not unlike, f"the operands {op.operands[0]} and {unlike[:1]} differ")
    op.expect_result(TupleShape(op.operands))


@rule("ragged-all-to-all")
def _ragged_all_to_all(op: Operation) -> None:
    _check_groups(op, True)
    op.require(len(op.operands) == 6, f"ragged-all-to-all has 6 operands, not {len(op.operands)}")
    x, out, *numbers = op.arrays()
    op.require(x.rank > 0 and x.dtype == out.dtype, f"{x} and {out} differ in type or are scalars")
    op.require(x.dims[1:] == out.dims[1:], f"{x} and {out} differ in other dimensions than the first")
    for n, shape in enumerate(numbers, 2):
        op.require(ELEMENT_TYPES[shape.dtype].kind == "int", f"operand {n} must hold integers, not {shape}")
        op.require(shape.rank == 1, f"operand {n} must have one dimension, not be {shape}")
        op.require(shape.dims == numbers[0].dims, f"the operands {numbers[0]} and {shape} differ in dimensions")
    op.expect_result(out)


@rule("send")
def _send(op: Operation) -> None:
    op.expect_result(TupleShape((op.operands[0], ArrayShape("u32", ()), _TOKEN)))


@rule("send-done")
def _send_done(op: Operation) -> None:
    op.expect_result(_TOKEN)


@rule("recv-done")
def _recv_done(op: Operation) -> None:
    op.expect_result(TupleShape((_part(op, 0), _TOKEN)))


def check_operand_aliases(op: Operation) -> None:
    """Check ``output_to_operand_aliasing``: parts of the result that share an operand's memory."""
    for alias in op.get("output_to_operand_aliasing", ()):
        operand = op.operands[alias.parameter] if 0 <= alias.parameter < len(op.operands) else None
        source = part(operand, alias.parameter_index) if operand is not None else None
        target = part(op.result, alias.output_index)
        if source is None or target is None:
            what = "an operand" if source is None else "the result"
            op.fail(f"output_to_operand_aliasing {alias} names no part of {what}")
        same = shape_bytes(source) == shape_bytes(target)
        op.require(same, f"output_to_operand_aliasing {alias}: {source} and {target} differ in size")
