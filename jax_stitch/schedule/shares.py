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
from jax_stitch.schedule.model import InnerReducePass, RowPass, Split, largest_divisor
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.storage import lay_out
from jax_stitch.schedule.vectors import vector_of
from jax_stitch.util.values import replace

LEAST = 4
"""Fewer shares are not worth combining."""

MOST_PLACES = 8
"""Neighbouring places that a lane has."""


def shared_out(
    shape: PatternView, passes: Sequence[RowPass], cached: Collection[int], split: Split, device: Device
) -> tuple[RowPass, ...]:
    """Return the passes, with what such reductions reduce shared out over the lanes of a split, as far as a block has
    shared memory for the shares: of several reductions they are there together.
    """
    if device.target.lanes_are_vectors or split.cluster > 1:
        return tuple(passes)
    for most in (MOST_PLACES, 4, 2, 1):
        shared = tuple(
            _shared_out(shape, s, cached, split, most) if isinstance(s, InnerReducePass) else s for s in passes
        )
        if lay_out(shape, shared, split).shared_bytes <= device.shared_per_block_optin:
            return shared
    return tuple(passes)


def _shared_out(
    shape: PatternView, row_pass: InnerReducePass, cached: Collection[int], split: Split, most: int
) -> RowPass:
    reduce, own, total = shape.graph[row_pass.reduce], row_pass.size, prod(row_pass.reduced)
    several = len(reduce.operands) > 2  # An argmax: each lane starts from its initial values, as XLA's lanes do.
    if not several and neutral_value(reduce.graphs["to_apply"], shape.graph[reduce.operands[0]].tensor.dtype) is None:
        return row_pass
    for vector in (v for v in (8, 4, 2, 1) if v <= most):
        shares = largest_divisor(total, split.lanes * vector // own)
        shared = replace(row_pass, size=own * shares, reduced=(total // shares,), shares=shares, vector=vector)
        if shares >= LEAST and own % vector == 0 and vector <= vector_of(shape, shared, cached):
            return shared
    return row_pass
