"""Reductions that leave a few places of a row, on a GPU: the lanes that would have none share out what is reduced.

One lane for each remaining place leaves the others without work: of the sums of two channels over an image 1,022 of
1,024. Each remaining place is given as many shares as there are lanes for it. The shares' results are combined in
shared memory. A lane has several neighbouring places where they are neighbours in memory too, and more shares of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from jax_stitch.devices import Device
from jax_stitch.graph.combiners import neutral_value
from jax_stitch.schedule.model import InnerReducePass, RowPass, Split
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.vectors import vector_of
from jax_stitch.util.values import replace

LEAST = 4
"""Fewer shares are not worth combining."""

TOGETHER = 32
"""Shares that one lane combines in turn; of more, groups are combined first."""


def shared_out(
    shape: PatternView, passes: Sequence[RowPass], cached: Collection[int], split: Split, device: Device
) -> tuple[RowPass, ...]:
    """The passes, with what such reductions reduce shared out over the lanes of a split."""
    if device.target.lanes_are_vectors or split.cluster > 1:
        return tuple(passes)
    return tuple(_shared_out(shape, s, cached, split) if isinstance(s, InnerReducePass) else s for s in passes)


def _shared_out(shape: PatternView, row_pass: InnerReducePass, cached: Collection[int], split: Split) -> RowPass:
    reduce, own, total = shape.graph[row_pass.reduce], row_pass.size, prod(row_pass.reduced)
    several = len(reduce.operands) > 2  # An argmax: each lane starts from its initial values, as XLA's lanes do.
    if not several and neutral_value(reduce.graphs["to_apply"], shape.graph[reduce.operands[0]].tensor.dtype) is None:
        return row_pass
    for vector in (8, 4, 2, 1):
        shares = _largest_divisor(total, split.lanes * vector // own)
        shared = replace(row_pass, size=own * shares, reduced=(total // shares,), shares=shares, vector=vector)
        if shares >= LEAST and own % vector == 0 and vector <= vector_of(shape, shared, cached):
            return shared
    return row_pass


def groups_of(shares: int) -> int:
    """In how many groups shares are combined first; 1 where in none."""
    return 1 if shares <= TOGETHER else _largest_divisor(shares, TOGETHER)


def _largest_divisor(of: int, most: int) -> int:
    return max((n for n in range(1, min(of, most) + 1) if of % n == 0), default=1)
