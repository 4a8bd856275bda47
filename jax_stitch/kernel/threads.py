"""Which threads something concerns."""

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


class How(Enum):
    """How the iterations of a loop are executed."""

    SERIAL = "serial"
    LANE = "lane"
    """Shared out over lanes: those of a row, the threads of a team, or those that divide a sum."""
    UNROLLED = "unrolled"
    """Shared out over lanes, and written out one after the other."""
