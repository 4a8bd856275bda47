"""When the rows of a loop write an output: once at its end, or a part in each iteration."""

from __future__ import annotations

from dataclasses import dataclass

from jax_stitch.indexing.maps import Index


@dataclass(frozen=True, slots=True)
class After:
    """An output written once the loops have ended: its elements in a row."""

    node: int
    indices: tuple[Index, ...]
    uniform: bool


@dataclass(frozen=True, slots=True)
class During:
    """An output of which every iteration of a loop writes a part: the elements in a row, in terms of the loop's
    counter.
    """

    node: int
    indices: tuple[Index, ...]
    uniform: bool
    loop: int


Output = After | During
