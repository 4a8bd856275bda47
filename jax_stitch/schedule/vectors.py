"""Accesses of several neighbouring places at once: 16 bytes where every buffer's alignment allows it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis import linearize
from jax_stitch.analysis.expr import Var
from jax_stitch.analysis.locality import BATCH, PLACE, ROW
from jax_stitch.analysis.maps import Index
from jax_stitch.devices import Device
from jax_stitch.schedule.model import RUN, LoopStage, Order, Split, Stage
from jax_stitch.schedule.stages import Shape
from jax_stitch.schedule.walks import walk_stage

ACCESS = 16
"""Bytes of the widest access of a thread."""


def vectors_of(
    shape: Shape, stages: Sequence[Stage], stored: Collection[int], split: Split, device: Device
) -> dict[int, int]:
    """For each number of places of the passes of a part, the neighbours that a lane takes at a time, where several.

    Passes over as many places share them, since lanes keep values from one pass to the next. Those that scan, or reduce
    in runs, or read shared memory, go place by place.
    """
    if device.target.lanes_are_vectors or split.order is not Order.LANES:
        return {}
    passes = [s for s in stages if isinstance(s, LoopStage)]
    excluded = {s.size for s in passes if s.scans or ceil(s.size / split.lanes) > 2 * RUN}
    # In shared memory a lane's neighbours are in the banks of another lane's.
    excluded |= {s.size for s in passes if _reads_shared(shape, s, stored)}
    found: dict[int, int] = {}
    for size in {s.size for s in passes} - excluded:
        widths = {w for s in passes if s.size == size for w in _widths(shape, s, stored)}
        vector = ACCESS // max(widths, default=ACCESS)
        while vector > 1 and not _fill_lanes(size, split, vector):
            vector //= 2
        if vector > 1:
            found[size] = vector
    return found


def _fill_lanes(size: int, split: Split, vector: int) -> bool:
    """Whether the places of a row are as many vectors for each lane; or in a cluster, whose blocks keep by lane and not
    by place, one fewer for some, without more to keep.
    """
    if split.cluster == 1 or size % vector:
        return size % (split.lanes * vector) == 0
    return ceil(size / (split.lanes * vector)) * vector == ceil(size / split.lanes)


def _reads_shared(shape: Shape, stage: LoopStage, stored: Collection[int]) -> bool:
    """Whether a pass reads what a sort, or a reduction that keeps places, has left in shared memory, place by place."""
    read = walk_stage(shape, stage, stored, ()).stored
    return any(i in stored for i in stage.stores) or any(
        PLACE in {v.name for e in index for v in e.variables()} for _, index in read
    )


def _widths(shape: Shape, stage: LoopStage, stored: Collection[int]) -> set[int]:
    """The bytes of the elements that a pass reads and writes at neighbouring places."""
    accesses = [*walk_stage(shape, stage, stored, ()).loads, *((i, shape.value_elements(i)[0]) for i in stage.stores)]
    return {
        ELEMENT_TYPES[shape.graph[i].tensor.dtype].numpy.itemsize
        for i, index in accesses
        if is_in_vectors(index, shape.graph[i].tensor.dims, 2)
    }


def is_in_vectors(index: Index, dims: tuple[int, ...], vector: int) -> bool:
    """Whether ``vector`` neighbouring places are neighbours in memory, from a multiple of ``vector`` on."""
    steps: list[int] = []
    address = linearize(index, dims)
    rest = [address.offset]
    names: set[str] = set()
    for atom, c in address.terms:
        if isinstance(atom, Var) and atom.name == PLACE:
            steps.append(c)
        else:
            rest.append(c)
            names |= {atom.name} if isinstance(atom, Var) else {v.name for v in atom.of.variables()}
    return steps == [1] and names <= {ROW, BATCH} and all(n % vector == 0 for n in rest)
