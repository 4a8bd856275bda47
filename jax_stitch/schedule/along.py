"""Reductions that leave places of a row, on a CPU: lanes go along what is reduced, where that lies in memory in order.

A lane for each remaining place reads elements far from its neighbours': of the sums of a matrix's rows, one of each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from jax_stitch.devices import Device
from jax_stitch.ir.indices import linearize
from jax_stitch.ir.indices.variables import PLACE
from jax_stitch.schedule.beside import is_simple
from jax_stitch.schedule.model import InnerReducePass, Order, RowPass, Split
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.strides import is_unit_stride
from jax_stitch.schedule.walks import walk_pass
from jax_stitch.util.values import replace

LEAST_SHARES, MOST_SHARES = 2, 16
"""Elements of a reduction's last dimension that are a lane each: of more, lanes go along that."""


def in_memory_order(
    shape: PatternView, passes: Sequence[RowPass], cached: Collection[int], split: Split, device: Device
) -> tuple[RowPass, ...]:
    """Return the passes, with the lanes of such reductions along what is reduced."""
    if not device.target.lanes_are_vectors or split.order is not Order.LANES:
        return tuple(passes)
    return tuple(_ordered(shape, s, cached, split) if isinstance(s, InnerReducePass) else s for s in passes)


def _ordered(shape: PatternView, row_pass: InnerReducePass, cached: Collection[int], split: Split) -> InnerReducePass:
    reduce, total = shape.graph[row_pass.reduce], prod(row_pass.reduced)
    operand = shape.graph[reduce.operands[0]].tensor
    if not is_simple(shape, row_pass.reduce):
        return row_pass
    ways = [row_pass]
    if total >= 2 * split.lanes:
        ways.append(replace(row_pass, size=total, reduced=(row_pass.size,), along=True))
    last = row_pass.reduced[-1] if row_pass.reduced else 1  # Of no dimension: a scan of one element is such a sum.
    if len(operand.dims) - 1 in reduce.attributes["dimensions"] and LEAST_SHARES <= last <= MOST_SHARES < total:
        shares = replace(row_pass, size=row_pass.size * last, reduced=(total // last,), shares=last, neighbours=True)
        ways.append(shares)
    return max(ways, key=lambda way: _in_order(shape, way, cached))


def _in_order(shape: PatternView, row_pass: InnerReducePass, cached: Collection[int]) -> int:
    """Return how many of the arrays that a pass reads its lanes read in the order of memory."""
    walk = walk_pass(shape, row_pass, cached, ())
    addresses = [linearize(index, shape.graph[i].tensor.dims) for i, index in walk.loaded]
    return sum(is_unit_stride(address, PLACE) for address in addresses)
