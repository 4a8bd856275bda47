"""Accesses of several neighbouring places at once: 16 bytes where every buffer's alignment allows it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import ceil, gcd

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.analysis.accesses import Element
from jax_stitch.analysis.maps import Index
from jax_stitch.devices import Device
from jax_stitch.ir.indices import linearize
from jax_stitch.ir.indices.expr import Div, Expr, Mod, Var, Within
from jax_stitch.ir.indices.variables import BATCH, PLACE, ROW, TERM
from jax_stitch.schedule.model import SUM_BLOCK, InnerReducePass, LoopPass, OncePass, Order, RowPass, SortPass, Split
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.walks import walk_pass

ACCESS = 16
"""Bytes of the widest access of a thread."""

MOST_WITH_SUMS = 24
"""Elements that a thread reads and writes of its rows, where it goes on to the next rows with sums of all: compilers
start several trips together, and run out of registers with more."""


def vectors_of(
    shape: PatternView,
    passes: Sequence[RowPass],
    cached: Collection[int],
    split: Split,
    device: Device,
    in_order: Collection[int] = (),
    group: int = 1,
) -> dict[int, int]:
    """Return, for each number of places of the passes of a part, the neighbours that a lane takes at a time, if
    several.

    Passes over as many places share them, since lanes cache values from one pass to the next. Those that scan, or
    reduce in blocks, or read shared memory, go place by place. Those over as many places as are ``in_order`` have them
    so in memory of the block, where there is no room for more. Where rows run fastest, there are vectors only where a
    ``group`` of several places of a row lies in memory before that of the next row.
    """
    if device.target.lanes_are_vectors or (split.order is not Order.LANES and (group == 1 or split.row_vector > 1)):
        return {}
    loops = [s for s in passes if isinstance(s, LoopPass)]
    excluded = {s.size for s in loops if s.scans or ceil(s.size / split.lanes) > 2 * SUM_BLOCK}
    # In shared memory a lane's neighbours are in the banks of another lane's.
    excluded |= {s.size for s in loops if _reads_shared(shape, s, cached)}
    vectors: dict[int, int] = {}
    for size in {s.size for s in loops} - excluded:
        most = [m for s in loops if s.size == size for m in _neighbours(shape, s, cached)]
        vector = _widest(most)
        exact = size in in_order and split.cluster == 1
        while vector > 1 and not (_fill_lanes(size, split, vector, exact) and _for_most(most, vector)):
            vector //= 2
        if vector > 1:
            vectors[size] = vector
    return vectors


def vector_of(shape: PatternView, row_pass: InnerReducePass, cached: Collection[int]) -> int:
    """Return how many neighbours of the places that a reduction inside the row leaves a lane can take at a time."""
    most = list(_neighbours(shape, row_pass, cached))
    vector = _widest(most)
    while vector > 1 and not _for_most(most, vector):
        vector //= 2
    return vector


def _widest(neighbours: Sequence[tuple[int, int]]) -> int:
    """Return the elements of one access, of the widest of those that are neighbours."""
    return ACCESS // max((width for width, _ in neighbours), default=ACCESS)


def _fill_lanes(size: int, split: Split, vector: int, exact: bool) -> bool:
    """Return whether the places of a row are as many vectors for each lane; or, but where that has to be ``exact``, one
    fewer for some, without much more to cache (in a cluster: without any).
    """
    if exact or size % vector:
        return size % (split.lanes * vector) == 0
    per_lane = ceil(size / split.lanes)
    return 4 * ceil(size / (split.lanes * vector)) * vector <= (4 if split.cluster > 1 else 5) * per_lane


def _reads_shared(shape: PatternView, row_pass: LoopPass, cached: Collection[int]) -> bool:
    """Return whether a pass reads what a sort, or an inner reduction, has left in shared memory, place by place; or
    what was copied there, at other places than it is at.
    """
    read = set(walk_pass(shape, row_pass, cached, ()).cached) - _read_as_copied(shape, row_pass, cached)
    return any(i in cached for i in row_pass.writes) or any(
        PLACE in {v.name for e in index for v in e.variables()} for _, index in read
    )


def _read_as_copied(shape: PatternView, row_pass: LoopPass, cached: Collection[int]) -> set[Element]:
    """Return what a pass reads of inputs whose rows were copied to shared memory, at the places that it is at."""
    read = walk_pass(shape, row_pass, cached, ()).cached
    return {(i, at) for i, at in read if i in shape.pattern.inputs and at == shape.value_elements(i)[0]}


def _neighbours(
    shape: PatternView, row_pass: LoopPass | InnerReducePass, cached: Collection[int]
) -> Iterator[tuple[int, int]]:
    """Yield, for what a pass reads and writes at neighbouring places, the bytes of its elements, and how many are
    neighbours in memory.
    """
    moved = list(walk_pass(shape, row_pass, cached, ()).loaded)
    if isinstance(row_pass, LoopPass):
        moved += sorted(_read_as_copied(shape, row_pass, cached), key=str)
        moved += ((i, shape.value_elements(i)[0]) for i in row_pass.writes)
    for i, index in moved:
        tensor = shape.graph[i].tensor
        most = next((v for v in (16, 8, 4, 2) if is_in_vectors(index, tensor.dims, v)), 1)
        if most > 1:
            yield ELEMENT_TYPES[tensor.dtype].numpy.itemsize, most


def _for_most(neighbours: Sequence[tuple[int, int]], vector: int) -> bool:
    """Return whether at least half of the accesses of neighbours can be of so many."""
    return 2 * sum(most >= vector for _, most in neighbours) >= len(neighbours)


def is_in_vectors(index: Index, dims: tuple[int, ...], vector: int, along: str = PLACE) -> bool:
    """Return whether ``vector`` neighbouring places (or rows, ``along`` which) from a multiple of ``vector`` on are
    neighbours in memory, the first at a multiple of ``vector``.
    """
    address = linearize(index, dims)
    if not {v.name for v in address.variables()} <= {ROW, BATCH, PLACE, TERM}:
        return False  # Data is not known before the loop over a vector's elements.
    step, multiple = _along(address, along, vector)
    return step == 1 and multiple % vector == 0


def _along(e: Expr, name: str, vector: int) -> tuple[int | None, int]:
    """Return by how much an expression grows from one of ``vector`` neighbours to the next, None where that differs;
    and what its value at the first of them is a multiple of.
    """
    step, multiple = 0, e.offset
    for atom, c in e.terms:
        if isinstance(atom, Var):
            own, of = (1, vector) if atom.name == name else (0, 1)
        else:
            inner, of = _along(atom.of, name, vector)
            if inner is None:
                return None, 1
            own = inner
            if not isinstance(atom, Within) and own:
                # A piece that begins at a multiple of the vector ends at one, or goes through some of the neighbours.
                if own != 1 or of % vector or atom.by % vector:
                    return None, 1
                own, of = (1, gcd(of, atom.by)) if isinstance(atom, Mod) else (0, 1)
            elif isinstance(atom, Mod):
                of = gcd(of, atom.by)
            elif isinstance(atom, Div):
                of = of // atom.by if of % atom.by == 0 else 1
        step, multiple = step + c * own, gcd(multiple, c * of)
    return step, multiple


def row_vector_of(shape: PatternView, passes: Sequence[RowPass], cached: Collection[int], device: Device) -> int:
    """Return how many neighbouring rows a thread of a GPU can take at a time where rows run fastest: as many as the
    widest access holds, where all that is read and written place by place is so of neighbouring rows, or the same for
    them.
    """
    if device.target.lanes_are_vectors:
        return 1
    most, widest, moved = ACCESS, 0, 0
    for s in passes:
        if isinstance(s, SortPass | InnerReducePass) or (isinstance(s, LoopPass) and (s.scans or s.partials)):
            return 1
        written = [(i, shape.value_elements(i)[0]) for i in s.writes]
        for i, index in (*walk_pass(shape, s, cached, ()).loaded, *written):
            tensor = shape.graph[i].tensor
            size = ELEMENT_TYPES[tensor.dtype].numpy.itemsize
            taken = next((v for v in (8, 4, 2) if v * size <= ACCESS and is_in_vectors(index, tensor.dims, v, ROW)), 1)
            if taken > 1:
                most, widest, moved = min(most, taken), max(widest, size), moved + 1
            elif isinstance(s, LoopPass) and _differs(linearize(index, tensor.dims)):
                return 1
    rows = min(most, ACCESS // widest) if widest else 1
    if any(isinstance(s, OncePass) and s.partials for s in passes):
        while rows > 1 and rows * moved > MOST_WITH_SUMS:
            rows //= 2
    return rows


def _differs(address: Expr) -> bool:
    """Return whether neighbouring rows read or write different elements."""
    return ROW in {v.name for v in address.variables()}
