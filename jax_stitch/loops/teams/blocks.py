"""Matrix products that a CPU computes in blocks of rows and vectors, whose sums stay in registers through all steps.

See ``backend/runtime/product.h``. A vector is loaded once for all rows of its block, so that multiplications are what
takes time. One row after the other, a product takes as long as its loads, or longer where the matrix is not in the
first cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from jax_stitch.analysis.patterns.sweeps import Sharing, Sweep
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.terms import step_count
from jax_stitch.devices import Device
from jax_stitch.kernel.product_blocks import LEAST_LANES, LEAST_STEPS, TYPES
from jax_stitch.loops.teams.sweeps import reduce_terms
from jax_stitch.loops.teams.team import reach

MOST_SUMS = 2048
"""Of a block's rows: a quarter of the smallest first cache."""

_MOVES = frozenset({"broadcast", "dynamic-slice", "reshape", "reverse", "slice", "transpose"})
"""What may stand between memory and a product: all of an operand is read alike."""

_MULTIPLY_CLOCKS, _WAIT_CLOCKS = 0.36, 4.0
"""Clocks of a vector for each row of a block; and of a step of a block at least, since each sum waits for its last one.
Measured.
"""

_NEAR_CLOCKS, _LOAD_CLOCKS, _FAR_CLOCKS = 0.2, 0.72, 5.0
"""Clocks to load a vector from the first cache, the second, and further away. Measured on 60 to 128 rows."""

MOST_VECTORS = 16
"""The most vectors of a row in a block, as in ``backend/runtime/product.h``."""


class StepRead(Struct, frozen=True):
    """A read inside a reduction: how far its address moves with each factor of the domain (the last: with the step);
    ``None`` where that is not always the same.
    """

    strides: tuple[int | None, ...]
    is_shared: bool
    bytes: int = 0
    """Of an array outside."""


def is_plain(loop: TeamLoop, reduces: Sequence[int]) -> bool:
    """Return whether reductions are products of elements as they lie in memory."""
    body = loop.body
    for r in reduces:
        node = body[r]
        types = {node.tensor.dtype, *(body[o].tensor.dtype for o in node.operands)} if node.op == "dot" else set()
        if len(types) != 1 or not types <= TYPES or step_count(loop.body, r) < LEAST_STEPS:
            return False
        starts = [e for e in reduce_terms(loop, r) if e[0] not in loop.cached]
        if any(body[i].op not in _MOVES for i, _ in reach(body, starts, loop.cached, loop.arrays).computed):
            return False
    return True


def block_sharings(sweep: Sweep, accesses: Sequence[StepRead], device: Device) -> list[Sharing]:
    """Return the ways to compute products in blocks, whose operands are read like ``accesses``, a pair for each
    product.
    """
    rows, sharings = room(device) // 3, []
    for lane, size in enumerate(sweep.sizes):
        if size < LEAST_LANES or not all(_is_even(pair, lane) for pair in _pairs(accesses)):
            continue
        tiles = [(-1, 1)]
        tiles += [(d, k) for d, n in enumerate(sweep.sizes) if d != lane for k in range(2, rows + 1) if n % k == 0]
        sharings += [Sharing(lane, d, k, chunk=_chunk(size, k, device)) for d, k in tiles]
    return sharings


def room(device: Device) -> int:
    """Return the most vectors of sums that leave registers for their operands."""
    return 24 if device.registers_per_multiprocessor >= 32 * device.warp_size else 12


def block_clocks(sweep: Sweep, accesses: Sequence[StepRead], device: Device) -> float:
    """Return clocks of a step of the products for all lanes of a block's rows."""
    sharing, clocks = sweep.sharing, 0.0
    wide = [a if a.strides[sharing.lane] == 1 else b for a, b in _pairs(accesses)]
    load = _load_clocks(sum(a.bytes for a in wide), device)
    each = device.clocks_per_vector
    chunks, rest = divmod(sweep.lanes, sharing.chunk)
    blocks = [*_blocks_of(sharing.chunk, sharing.tile, device) * chunks, *_blocks_of(rest, sharing.tile, device)]
    for a in wide:
        loads = sharing.tile if sharing.tile > 1 and a.strides[sharing.tiled] != 0 else 1
        one = _MULTIPLY_CLOCKS * sharing.tile + load * loads
        clocks += sum(max(_WAIT_CLOCKS, each * vectors * one) for vectors in blocks)
    return clocks


def _load_clocks(read: int, device: Device) -> float:
    """Return the clocks to load a vector, of so many bytes that are read again in each step of a loop."""
    if read <= device.shared_per_block:
        return _NEAR_CLOCKS
    return _LOAD_CLOCKS if read <= device.shared_per_block_optin else _FAR_CLOCKS


def _blocks_of(places: int, rows: int, device: Device) -> list[int]:
    """Return the vectors of each block that so many neighbouring places are divided into: see ``product_places``."""
    vectors = -(-places // device.warp_size)
    most = max(1, min(MOST_VECTORS, room(device) // rows))
    count = -(-vectors // most)
    return [vectors // count + (k < vectors % count) for k in range(count)]


def _pairs(accesses: Sequence[StepRead]) -> list[tuple[StepRead, StepRead]]:
    return list(zip(accesses[::2], accesses[1::2], strict=True))


def _is_even(pair: tuple[StepRead, StepRead], lane: int) -> bool:
    """Return whether neighbouring lanes share one operand and read neighbours of the other."""
    strides = [a.strides[lane] for a in pair]
    return set(strides) == {0, 1} and all(a.strides[-1] is not None for a in pair)


def _chunk(lanes: int, rows: int, device: Device) -> int:
    """Return the number of places taken at a time: all, or equal parts of them if there are any of about that size.

    Their sums are in memory once they are complete, and are read again at once.
    """
    most = max(device.warp_size, MOST_SUMS // rows // device.warp_size * device.warp_size)
    if lanes <= most:
        return lanes
    equal = [w for w in range(most, most // 2, -1) if lanes % w == 0]
    return equal[0] if equal else most
