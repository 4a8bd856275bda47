"""Inputs whose rows a block copies to shared memory, since several passes go through them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis.binding import position_in
from jax_stitch.analysis.maps import Index
from jax_stitch.devices import Device
from jax_stitch.graph.model import TensorType
from jax_stitch.ir.indices import const, linearize, var
from jax_stitch.ir.indices.variables import PLACE, ROW
from jax_stitch.schedule.model import LoopPass, Order, Part, RowPass, Split
from jax_stitch.schedule.residency import STATIC_BYTES
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.storage import lay_out
from jax_stitch.schedule.walks import walk_pass

LEAST_FETCHED = 16
"""Bytes whose multiples are the address and the size of a bulk copy (PTX ISA, ``cp.async.bulk``)."""


def to_fetch(
    shape: PatternView, passes: Sequence[RowPass], cached: Collection[int], split: Split, device: Device
) -> tuple[int, ...]:
    """Return the inputs whose rows are worth having in shared memory: those that several passes go through from end to
    end, each row in one piece, as far as there is room.
    """
    if not device.fetches_rows or split.order is not Order.LANES or split.cluster > 1 or split.row_vector > 1:
        return ()
    graph, bindings = shape.graph, shape.pattern.bindings
    loads = [(s, walk_pass(shape, s, cached, ()).loaded) for s in passes]
    fetched: list[int] = []
    for i in shape.pattern.inputs:
        tensor, own = graph[i].type, shape.value_elements(i) if i in bindings else None
        if own is None or not isinstance(tensor, TensorType) or not _in_one_piece(own[0], own[1], tensor):
            continue
        read = [e for _, w in loads for e in w if e[0] == i]
        reading = sum(isinstance(s, LoopPass) and s.size == own[1] and w.get((i, own[0]), False) for s, w in loads)
        if reading > 1 and all(position_in(bindings[i], shape.row, at) is not None for _, at in read):
            room = device.shared_per_block_optin - STATIC_BYTES
            if lay_out(shape, passes, split, (*fetched, i)).shared_bytes <= room:
                fetched.append(i)
    return tuple(fetched)


def _in_one_piece(index: Index, size: int, tensor: TensorType) -> bool:
    """Return whether a row's ``size`` elements lie in memory one after the other, from a multiple of what is copied at
    a time on, and are a multiple of it; and are the row's own.
    """
    itemsize = ELEMENT_TYPES[tensor.dtype].numpy.itemsize
    address = linearize(index, tensor.dims)
    names = {v.name for v in address.variables()}
    start = address - var(PLACE, size)
    apart = PLACE in {v.name for v in start.variables()}
    whole = size * itemsize % LEAST_FETCHED == 0 and start % (LEAST_FETCHED // itemsize) == const(0)
    return names == {ROW, PLACE} and not apart and whole


def fetched(part: Part) -> tuple[int, ...]:
    """Return the inputs of a part whose rows are in shared memory: no pass has made them there."""
    return tuple(i for i in part.pattern.inputs if i in part.storage)
