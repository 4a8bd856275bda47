"""Statements of the kernel language: what the threads of a block do, in order.

A block holds some rows, and some lanes work on each; all threads go through the same statements. What a name stands for
differs from thread to thread, or from row to row, as its declaration says.
"""

from __future__ import annotations

from math import ceil
from typing import TypeGuard

from msgspec import Struct

from jax_stitch.ir.indices.expr import Expr, const
from jax_stitch.kernel.expressions import Element, Ref, Tests, Value
from jax_stitch.kernel.threads import How, Reach, Space, Who


class Axis(Struct, frozen=True):
    """The variable of a loop: it counts the iterations from 0, of which there are ``extent``."""

    variable: str
    extent: int
    how: How = How.SERIAL


class Define(Struct, frozen=True):
    """A name for a value, which does not change."""

    name: str
    dtype: str
    value: Value


class Allocate(Struct, frozen=True):
    """A name for what is written later, or starts as ``first``. ``in_memory`` where elements are as in buffers and not
    as they are computed. Of two ``copies`` one is read, and ``next_``NAME is written, until they are swapped.
    """

    name: str
    dtype: str
    space: Space
    size: int = 1
    first: Value | None = None
    each: int = 0
    offset: int = 0
    in_memory: bool = False
    copies: int = 1
    scratch: str = ""

    @classmethod
    def accumulator(cls, name: str, dtype: str, first: Value) -> Allocate:
        """Return the declaration of a value of each thread."""
        return cls(name, dtype, Space.LANE, first=first)

    @classmethod
    def of_row(cls, name: str, dtype: str) -> Allocate:
        """Return the declaration of a value of each row."""
        return cls(name, dtype, Space.ROW)

    @classmethod
    def shared(cls, name: str, dtype: str, size: int, offset: int, in_memory: bool = False) -> Allocate:
        """Return the declaration of an array in shared memory."""
        return cls(name, dtype, Space.SHARED, size, offset=offset, in_memory=in_memory)

    @property
    def is_local(self) -> bool:
        """Return whether it is a name of the statements after it alone."""
        return self.space is Space.LOCAL


class Assign(Struct, frozen=True):
    """Writes a cell, or an element of an array; some threads alone where ``who`` says so."""

    target: Ref | Element
    value: Value
    who: Who | None = None


class Case(Struct, frozen=True):
    """The statements to execute where all the tests hold."""

    tests: Tests
    body: Body


class Choice(Struct, frozen=True):
    """The first case whose tests all hold; the last may have none."""

    cases: tuple[Case, ...]


class Scope(Struct, frozen=True):
    """Names declared inside end with it."""

    body: Body


class For(Struct, frozen=True):
    """A loop that all threads go through: ``variable`` from ``start`` on in steps of ``by``, below all of ``stops``;
    without an end of its own where there are none.

    ``unroll`` iterations are written as one; ``one_row`` where there is only one.
    """

    variable: str
    start: Expr
    stops: tuple[Expr, ...]
    by: int
    body: Body
    unroll: int = 1
    one_row: bool = False

    @classmethod
    def times(cls, variable: str, trips: int | None, body: Body, unroll: int = 1, one_row: bool = False) -> For:
        """Return a loop of ``trips`` iterations, counted from 0; without an end for None."""
        stops = () if trips is None else (const(trips),)
        return cls(variable, const(0), stops, 1, body, unroll, one_row)

    @property
    def extent(self) -> int | None:
        """Return the trip count of a loop that counts its iterations from 0; None for others."""
        return self.trips if self.start == const(0) and self.by == 1 else None

    @property
    def trips(self) -> int | None:
        """Return the most iterations; None for a loop without an end of its own."""
        return ceil(max(0, min((s - self.start).high for s in self.stops)) / self.by) if self.stops else None


class LeaveUnless(Struct, frozen=True):
    """Ends the loop around it unless a condition holds, which all rows have alike; of a row flag: for any row."""

    condition: Value
    any_row: bool = False


class Barrier(Struct, frozen=True):
    """All threads meet. What one wrote before, all read afterwards."""

    reach: Reach = Reach.BLOCK


class Rows(Struct, frozen=True):
    """Once for each row of the block; if ``high`` is given, only for those from ``low`` to below ``high``."""

    body: Body
    low: int = 0
    high: int | None = None


class Stretch(Struct, frozen=True):
    """The statements to execute at the places of a run from ``low`` on, below ``high``."""

    low: int
    high: int
    body: Body


class Prefetch(Struct, frozen=True):
    """Asks for what rows have ``step`` elements after ``at``."""

    array: str
    at: Expr
    step: int


class JoinStep(Struct, frozen=True):
    """One of the things that are done after so many places."""

    body: Body


class Joins(Struct, frozen=True):
    """The statements of each thread after ``block`` of its places or steps (the first), after ``block`` of those ..."""

    block: int
    steps: tuple[JoinStep, ...]


class Pass(Struct, frozen=True):
    """``row`` for each row, and ``stretches`` at each place of each run of the row. Unrolled places are shared out
    over lanes too, and what is cached at each stays in registers.
    """

    run: Axis
    place: Axis
    row: Body
    stretches: tuple[Stretch, ...]
    vector: int = 1
    """Neighbouring places that a lane takes at a time."""
    first_row_only: bool = False
    """The block's first row alone."""
    ahead: tuple[Prefetch, ...] = ()
    joins: Joins | None = None
    fetches: bool = False
    """Whole rows are copied to shared memory, by a unit of its own where there is one; threads meet for it."""

    @property
    def size(self) -> int:
        """Return the number of places of a row."""
        return self.run.extent * self.place.extent

    @property
    def period(self) -> int:
        """Return the number of places of a run."""
        return self.place.extent

    @property
    def is_unrolled(self) -> bool:
        """Return whether the loop over places is written out."""
        return self.place.how is How.UNROLLED


class Apply(Struct, frozen=True):
    """An intrinsic, a row of ``intrinsics.TABLE``, of these cells; its row says what it does with each."""

    intrinsic: str
    cells: tuple[str, ...]
    function: str = ""
    sizes: tuple[int, ...] = ()
    operands: tuple[Value, ...] = ()


class Scan(Struct, frozen=True):
    """A scan over the places of a row; ``first`` comes before all of them."""

    combiner: str
    name: str
    first: Value


class ScanStep(Struct, frozen=True):
    """Some scans' operands at each place of a batch, then these scans; the last step of all has no scans."""

    body: Body
    scans: tuple[str, ...]


class ScanPass(Struct, frozen=True):
    """The lanes go along the row in order, in batches of ``batch`` places each; each scan carries what it has so far
    from batch to batch. ``backward`` from the last place to the first.
    """

    place: Axis
    batch: int
    backward: bool
    scans: tuple[Scan, ...]
    steps: tuple[ScanStep, ...]

    @property
    def size(self) -> int:
        """Return the number of places of a row."""
        return self.place.extent


class Swap(Struct, frozen=True):
    """The two copies of an array change places."""

    name: str
    dtype: str


class Inside(Struct, frozen=True):
    """Data as an index under a name, where it lies in [0, high]."""

    name: str
    of: Value
    high: int


class Add(Struct, frozen=True):
    """Adds to an element, where all the data in its index lies inside; several threads may add to one."""

    target: Element
    value: Value
    starts: tuple[Inside, ...]


class Square(Struct, frozen=True):
    """A name for an element that lies apart along lanes and next to each other along runs: a square of them is loaded
    line by line, and turned in registers.
    """

    name: str
    dtype: str
    element: Element


class Items(Struct, frozen=True):
    """Each place of each run by itself; lanes are serial where several places may add to one element. ``divided`` where
    helpers may do some of them, ``in_squares`` where a square of runs and lanes is done after the other, ``outlined``
    where a CPU has them as a function of their own.
    """

    run: Axis
    lane: Axis
    squares: tuple[Square, ...]
    body: Body
    divided: bool = False
    in_squares: bool = False
    outlined: bool = False


class Sum(Struct, frozen=True):
    """A value at a place that goes through steps: of a combiner, or a plain sum. One ``of_block`` joins another.
    Without ``first`` it begins as zero, in registers.
    """

    name: str
    combiner: str
    dtype: str
    first: Value | None
    of_block: bool = False


class Steps(Struct, frozen=True):
    """``body`` for each term of the sums; what is done after blocks of terms is done after the last too."""

    term: Axis
    body: Body
    joins: Joins | None = None


class Sums(Struct, frozen=True):
    """Each place of each run by ``split`` threads: they share out the terms of its sums, combine these, and one of them
    goes on to ``finish``. ``width`` neighbouring places are one vector where threads
    are vectors. ``divided`` and ``outlined`` as in ``Items``.
    """

    run: Axis
    lane: Axis
    split: int
    width: int
    sums: tuple[Sum, ...]
    steps: tuple[Steps, ...]
    finish: Body
    divided: bool = False
    outlined: bool = False
    fragments: tuple[int, ...] = ()
    """Where tensor cores compute the sums, of products alone: the fragments that a warp holds, of 16 runs by 8 lanes,
    along each."""


Statement = (
    Define | Allocate | Assign | Choice | Scope | For | LeaveUnless | Barrier | Rows | Pass | Apply
    | ScanPass | Swap | Add | Items | Sums
)  # fmt: skip

Body = tuple["Statement", ...]


def is_name(s: Statement) -> TypeGuard[Define | Allocate]:
    """Return whether a statement gives a name to a value of the statements after it."""
    return isinstance(s, Define) or (isinstance(s, Allocate) and s.is_local)
