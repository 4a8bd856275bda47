"""Intrinsics: what a block's threads do with what they keep, as one statement. A row for each says all that the stages
know of it: what it means, what it reads and writes, what it costs, and its text.

A new one is a row: ``register`` it, and make ``Apply`` statements of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum

import numpy as np
from msgspec import Struct

from jax_stitch.kernel.lockstep import Array, Held, Threads, precedes
from jax_stitch.kernel.model import RowShape
from jax_stitch.kernel.statements import Apply


class Use(Enum):
    """The effect of an intrinsic on one of its cells."""

    READS = "reads"
    WRITES = "writes"
    UPDATES = "updates"
    """It reads what is there, and writes."""
    DEFINES = "defines"
    """Its name is known from then on, for a value of the function's type."""


class Function(Enum):
    """The kind of function that an intrinsic calls. It determines the types of the cells."""

    COMBINER = "combiner"
    """The cells are of its type."""
    COMPARATOR = "comparator"
    """The cells are its fields, one each."""


class Extent(Struct, frozen=True):
    """How much of a part's work an intrinsic is counted for."""

    shape: RowShape
    blocks: int
    vectors: bool
    """True where lanes are those of a CPU's vectors."""
    times: float
    """How often the loops around it have it done, for single elements."""


Cost = Callable[[Apply, Extent], Iterator[tuple[str, float]]]
"""The instructions of a statement by class (``latency/classes.py``); ``CALL`` counts calls of its function."""
CALL = "call"


class Intrinsic(Struct, frozen=True):
    """A row: ``meaning`` runs it in NumPy, for all threads side by side; ``text`` is C++ against ``backend/runtime/``,
    with ``{function}``, ``{cells}``, ``{sizes}`` and ``{operands}`` of the statement to be filled in.
    """

    name: str
    uses: tuple[Use, ...]
    """The use of each cell, in order. The last one holds for all further cells."""
    meaning: Callable[[Threads, Apply], None]
    cost: Cost
    text: str
    function: Function | None = None
    meets: bool = False
    """True if all threads of a block have to reach it."""
    waits: bool = False
    """True if it has its own barriers, before it reads and before a thread goes on."""
    places: int | None = None
    """Which of its sizes is the number of places that its cells have."""

    def use(self, k: int) -> Use:
        """Return the use of cell number ``k``."""
        return self.uses[min(k, len(self.uses) - 1)]


def _reduce(threads: Threads, s: Apply) -> None:
    result, accumulator = s.cells
    total = threads.over_lanes(s.function, tuple(threads.cells[accumulator].fields))
    threads.cells[result].fields[:] = [np.array(v) for v in total]


def _reduce_cost(s: Apply, of: Extent) -> Iterator[tuple[str, float]]:
    shape = of.shape
    if shape.lanes_fastest:
        steps = (shape.lanes // shape.cluster).bit_length()
        yield "tree", shape.rows * (1 if of.vectors else shape.lanes) * steps
    else:
        yield "combine", shape.rows * shape.lanes
    if shape.cluster > 1:
        yield "exchange", shape.rows * shape.lanes


def _reduce_block(threads: Threads, s: Apply) -> None:
    result, accumulator = s.cells
    flat = tuple(f.reshape(threads.blocks, 1, -1) for f in threads.cells[accumulator].fields)
    threads.locals[result] = threads.over_lanes(s.function, flat)


def _reduce_block_cost(s: Apply, of: Extent) -> Iterator[tuple[str, float]]:
    threads = of.shape.rows_per_block * of.shape.lanes // of.shape.row_vector
    yield ("combine", of.blocks * threads) if of.vectors else ("tree", of.blocks * threads * threads.bit_length())


def _join(threads: Threads, s: Apply) -> None:
    total, block = (tuple(threads.cells[name].fields) for name in s.cells)
    threads.cells[s.cells[0]].fields[:] = threads.combined(s.function, total, block)


def _join_rows(threads: Threads, s: Apply) -> None:
    fields = threads.cells[s.cells[0]].fields
    transposed = tuple(f.swapaxes(1, 2) for f in fields)
    for field, total in zip(fields, threads.over_lanes(s.function, transposed), strict=True):
        field[:, :1, :] = total.swapaxes(1, 2)


def _join_rows_cost(s: Apply, of: Extent) -> Iterator[tuple[str, float]]:
    yield CALL, float(of.blocks * of.shape.rows_per_block * s.sizes[1])


def _fill(threads: Threads, s: Apply) -> None:
    for field, value in zip(threads.cells[s.cells[0]].fields, threads.value(s.operands[0]), strict=True):
        field[...] = value


def _fill_cost(s: Apply, of: Extent) -> Iterator[tuple[str, float]]:
    yield "keep", of.blocks * of.shape.rows_per_block * s.sizes[1]


def _multiply(threads: Threads, s: Apply) -> None:
    values = [threads.value(v)[0].astype(np.float64) for v in s.operands]
    shared, wide = values[: s.sizes[0]], values[s.sizes[0] :]
    for k, name in enumerate(s.cells):
        (total,) = threads.read(name)
        term = shared[k % len(shared)] * wide[k % len(wide)]
        threads.write(name, ((term + total).astype(total.dtype),))


def _multiply_cost(s: Apply, of: Extent) -> Iterator[tuple[str, float]]:
    yield "arithmetic", of.times * len(s.cells)


def _sort(threads: Threads, s: Apply) -> None:
    """Sort by exchanging neighbours, which is slow and stable."""
    order = next(c for c in threads.part.comparators if c.name == s.function)
    fields: list[Array] = [threads.cells[name].fields[0] for name in s.cells]
    size = s.sizes[0]
    for trip in range(size):
        low: Held = tuple(f[:, :, trip % 2 : size - 1 : 2] for f in fields)
        high: Held = tuple(f[:, :, trip % 2 + 1 : size : 2] for f in fields)
        swapped = precedes(order, high, low)
        for a, b in zip(low, high, strict=True):
            a[...], b[...] = np.where(swapped, b, a), np.where(swapped, a, b)


def _sort_cost(s: Apply, of: Extent) -> Iterator[tuple[str, float]]:
    """Count a merge sort, whose runs double in length: on a GPU a sorting network, which compares each place k times in
    doubling k.
    """
    size = s.sizes[0]
    doublings = (size - 1).bit_length()
    compared = float(of.shape.rows * size * doublings)
    if not of.vectors:
        compared *= (doublings + 1) / 2
        yield "tree", compared
    yield CALL, compared
    yield "keep", 2 * compared * len(s.cells)


def _reduction(name: str, text: str) -> Intrinsic:
    uses = Use.WRITES, Use.READS
    return Intrinsic(name, uses, _reduce, _reduce_cost, text, Function.COMBINER, meets=True, waits=True)


_ROWS = (
    # The accumulators of all lanes of a row, combined into a value of the row.
    _reduction("reduce", "ST_REDUCE({function}, {cells[0]}, {cells[1]})"),
    # The same where the lanes are those of a cluster's blocks.
    _reduction("reduce_cluster", "ST_REDUCE_CLUSTER({function}, {cells[0]}, {cells[1]})"),
    # The accumulators of all threads of the block, combined into a value that has its name from then on.
    Intrinsic(
        *("reduce_block", (Use.DEFINES, Use.READS), _reduce_block, _reduce_block_cost),
        text="ST_REDUCE_BLOCK({function}, {cells[0]}, {cells[1]})",
        function=Function.COMBINER,
        meets=True,
        waits=True,
    ),
    # Each thread's second accumulator joins its first.
    Intrinsic(
        *("join", (Use.UPDATES, Use.READS), _join, lambda s, of: iter(((CALL, of.times),))),
        text="ST_JOIN({function}, {cells[0]}, {cells[1]})",
        function=Function.COMBINER,
    ),
    # What is cached at places of all rows, combined into what the first row has. Sizes: places of a thread, places.
    Intrinsic(
        *("join_rows", (Use.UPDATES,), _join_rows, _join_rows_cost),
        text="ST_JOIN_ROWS({function}, {cells[0]}, {sizes[0]}, {sizes[1]})",
        function=Function.COMBINER,
        meets=True,
        waits=True,
        places=1,
    ),
    # Set what is cached at places of each row. Sizes: places of a thread, places.
    Intrinsic(
        *("fill_registers", (Use.WRITES,), _fill, _fill_cost),
        text="ST_FILL_REGISTERS({cells[0]}, {sizes[0]}, {sizes[1]}, {operands[0]})",
        places=1,
    ),
    Intrinsic(
        *("fill_shared", (Use.WRITES,), _fill, _fill_cost),
        text="ST_FILL_OWN_SHARED({cells[0]}, {sizes[1]}, {operands[0]})",
        places=1,
    ),
    # In each step, products added to sums that stay in registers: of elements that all lanes share and of one that
    # they have each their own of, or of one that all share and of several. Sizes: how many of the operands are shared,
    # how many not.
    Intrinsic("multiply", (Use.UPDATES,), _multiply, _multiply_cost, text=""),
    Intrinsic("multiply_from_zero", (Use.WRITES,), _multiply, _multiply_cost, text=""),
    # Elements, of which each array has a field, put in order for each row. Sizes: elements, and how many of the first
    # are wanted.
    Intrinsic(
        *("sort", (Use.UPDATES,), _sort, _sort_cost),
        text="ST_SORT({function}, {sizes[0]}, {sizes[1]}, {all_cells})",
        function=Function.COMPARATOR,
        meets=True,
        places=0,
    ),
)

TABLE: dict[str, Intrinsic] = {row.name: row for row in _ROWS}


def register(row: Intrinsic) -> None:
    """Add an intrinsic. Raises ``ValueError`` where there is one of its name."""
    if row.name in TABLE:
        raise ValueError(f"there is an intrinsic {row.name} already")
    TABLE[row.name] = row


def text_of(s: Apply, operands: Sequence[str]) -> str:
    """Return the C++ of a statement, from that of its operands."""
    cells = ", ".join(s.cells)
    return TABLE[s.intrinsic].text.format(
        function=s.function, cells=s.cells, all_cells=cells, sizes=s.sizes, operands=operands
    )


def defined(intrinsic: str, cells: tuple[str, ...]) -> Iterator[str]:
    """Yield the names that a statement defines."""
    row = TABLE.get(intrinsic)
    if row is not None:
        yield from (name for k, name in enumerate(cells) if row.use(k) is Use.DEFINES)
