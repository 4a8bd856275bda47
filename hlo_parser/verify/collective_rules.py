"""Rules of operations in which several devices take part."""

from __future__ import annotations

from ..shapes import ArrayShape, TupleShape
from .rules import Operation, rule


@rule("all-reduce", "collective-broadcast")
def _same_shapes(op: Operation) -> None:
    op.expect_results(op.arrays())


@rule("collective-permute")
def _collective_permute(op: Operation) -> None:
    pairs = op.get("source_target_pairs")
    op.require(all(len(p) == 2 for p in pairs), "source_target_pairs must be pairs")
    for side, what in ((0, "source"), (1, "target")):
        devices = [p[side] for p in pairs]
        op.require(len(set(devices)) == len(devices), f"source_target_pairs repeat a {what}")
    if not op.has("slice_sizes"):  # the form that moves slices has four operands
        op.expect_results(op.operands)


def _scaled(op: Operation, grows: bool) -> None:
    """All-gather and reduce-scatter: one dimension changes by the number of devices in a group."""
    axes = op.get("dimensions")
    op.require(len(axes) == 1, f"dimensions {axes} must name one")
    (axis,) = axes
    out = op.result
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


@rule("all-gather")
def _all_gather(op: Operation) -> None:
    _scaled(op, grows=True)


@rule("reduce-scatter")
def _reduce_scatter(op: Operation) -> None:
    _scaled(op, grows=False)
