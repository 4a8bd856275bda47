"""Which threads something concerns, and which of them what is allocated belongs to."""

from __future__ import annotations

from enum import Enum


class Who(Enum):
    """Which threads do a statement, where not all do."""

    FIRST_LANE = "first lane"
    """One of each row."""
    ONE_THREAD = "one thread"
    """Of the block."""
    FIRST_ROW = "first row"
    """Those of row 0."""


class Reach(Enum):
    """Which threads meet at a barrier, or share in a reduction."""

    BLOCK = "block"
    CLUSTER = "cluster"
    GRID = "grid"
    LAST_BLOCK = "last block"
    """Of the grid's blocks all end but the one that arrives last, which goes on alone."""


class Space(Enum):
    """Where what is allocated lies, and whose it is."""

    LOCAL = "local"
    """A name of what comes after it, until the braces around it end."""
    LANE = "lane"
    """One value of each thread: an accumulator."""
    ROW = "row"
    """One value of each row."""
    REGISTERS = "registers"
    """A value at each of ``size`` places of a row, for the thread that has the place: ``each`` per thread."""
    SHARED = "shared"
    """``size`` places of each row, in shared memory from byte ``offset`` on."""
    TEAM = "team"
    """``size`` elements of a team, in shared memory from byte ``offset`` on, or in a scratch buffer."""


class How(Enum):
    """How the iterations of a loop are executed."""

    SERIAL = "serial"
    LANE = "lane"
    """Shared out over lanes: those of a row, the threads of a team, or those that divide a sum."""
    UNROLLED = "unrolled"
    """Shared out over lanes, and written out one after the other."""
    REGISTERS = "registers"
    """With what they add to in registers, from the first to the last."""
