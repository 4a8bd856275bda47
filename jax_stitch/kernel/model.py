"""A kernel in the kernel language: its parts, the functions that they call, and which blocks do which part."""

from __future__ import annotations

from msgspec import Struct

from jax_stitch.kernel.expressions import Literal, Value
from jax_stitch.kernel.statements import Body, Define


class Combiner(Struct, frozen=True):
    """Two values into one: ``results`` in terms of ``a`` and ``b``, after ``body``.

    Its values have a field for each of ``dtypes``; one alone is no structure. ``identity`` is its neutral value where
    that is known.
    """

    name: str
    dtypes: tuple[str, ...]
    body: tuple[Define, ...]
    results: tuple[Value, ...]
    identity: Literal | None


class Comparator(Struct, frozen=True):
    """Whether ``a`` comes before ``b``: ``result``, after ``body``. The elements' fields are of the types ``dtypes``;
    of a ``stable`` sort the last is the place that an element came from, and settles what is equal.
    """

    name: str
    dtypes: tuple[str, ...]
    stable: bool
    body: tuple[Define, ...]
    result: Value


class Table(Struct, frozen=True):
    """An array of constants."""

    name: str
    dtype: str
    values: tuple[Literal, ...]


class Parameter(Struct, frozen=True):
    """A buffer that a part is given: its elements, as they are in memory. ``crossing`` if another phase of the kernel
    writes what this one reads.
    """

    name: str
    dtype: str
    size: int
    written: bool
    crossing: bool = False
    scratch: bool = False
    in_place: bool = False
    """Whether its memory is that of another of the kernel's buffers too: an output's that is written over an input."""


class RowShape(Struct, frozen=True):
    """``rows`` rows over blocks of ``rows_per_block`` x ``lanes`` threads, ``sequence`` groups of rows in turn.

    No group goes across a multiple of ``period``.
    """

    rows: int
    period: int
    rows_per_block: int
    lanes: int
    lanes_fastest: bool
    sequence: int
    cluster: int = 1
    exchange_offset: int = 0
    exchange_size: int = 0
    """With a cluster: where in shared memory its blocks hand each other values, and their size."""
    row_vector: int = 1
    """Neighbouring rows that one thread of a GPU has, where rows run fastest: it does for them what as many threads
    would, one after the other between barriers, and reads and writes them together."""


class TeamShape(Struct, frozen=True):
    """A block's ``threads`` (all blocks' where ``spread``) work on one row together. On a CPU one thread does; of one
    row it divides some sweeps in so many ``pieces``, which as many threads may do.
    """

    rows: int
    threads: int
    spread: bool
    pieces: int = 1


class Part(Struct, frozen=True):
    """What some of a kernel's blocks do: ``before`` all rows, ``body`` for each group of rows, and ``after`` them."""

    name: str
    shape: RowShape | TeamShape
    wide: bool
    """Whether indices have 64 bits."""
    parameters: tuple[Parameter, ...]
    combiners: tuple[Combiner, ...]
    comparators: tuple[Comparator, ...]
    tables: tuple[Table, ...]
    before: Body
    body: Body
    after: Body
    comments: tuple[str, ...] = ()


class Call(Struct, frozen=True):
    """Blocks [first, last) do part number ``part``; ``arguments`` are the kernel's buffers that it is given."""

    part: int
    first: int
    last: int
    arguments: tuple[str, ...]


class Phase(Struct, frozen=True):
    """What is done between two barriers of all blocks."""

    calls: tuple[Call, ...]


class Buffer(Struct, frozen=True):
    """Global memory that a kernel is given."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    over: str = ""
    """Of an output: the input whose memory it takes, where it takes one's."""


class Launch(Struct, frozen=True):
    """How the kernel is launched."""

    blocks: int
    threads: int
    shared_bytes: int
    cluster: int
    together: int | None
    """Blocks that a multiprocessor is to have room for."""
    resident: bool
    """Whether its blocks wait for each other."""
    last_block_from: int
    """The first phase that the last block to arrive does by itself, where there is one."""


class Kernel(Struct, frozen=True):
    """One kernel."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    parts: tuple[Part, ...]
    phases: tuple[Phase, ...]
    launch: Launch
