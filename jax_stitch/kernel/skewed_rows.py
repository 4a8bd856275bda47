"""Rows of shared memory that begin in other banks than their neighbours (skewing): arrays whose elements a warp reads
for tensor cores, some of each of several rows, are laid out with each row turned by a few elements more than the last.

Else the elements of a column lie in one bank, and are read one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from jax_stitch.ir.indices.expr import Expr
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element
from jax_stitch.kernel.model import Kernel, Part
from jax_stitch.kernel.threads import How, Space
from jax_stitch.kernel.walk import field_names, nodes
from jax_stitch.util.values import replace

BANKS = 32
"""The banks of shared memory, each with a word of four bytes."""

SKEWS = (0, 4, 8)
"""Words by which a row is turned further than the one before: of a fragment, a warp reads four words of eight rows, or
eight of four.
"""


class Access(Struct, frozen=True):
    """How a warp accesses a fragment of an array with rows of ``length``: eight elements, ``eight`` apart, of each of
    four groups, ``four`` apart; elements are of ``width`` bytes.
    """

    eight: int
    four: int
    length: int
    width: int = 4

    @property
    def rows_are_whole(self) -> bool:
        """Return whether each row begins in the first bank."""
        return self.length * self.width % (4 * BANKS) == 0


def conflicts(of: Access, skew: int = 0) -> int:
    """Return how often a bank is asked for an access."""
    places = [g * of.eight + t * of.four for g in range(8) for t in range(4)]
    words = {a * of.width // 4 + a // of.length * skew for a in places}
    return max(Counter(word % BANKS for word in words).values())


def factor(place: int, step: int, steps: int) -> Access:
    """Return the access to a factor's fragment, of so many ``steps``, from how far places and steps are apart: of
    halves a thread has two neighbouring steps.
    """
    return Access(place, step * (steps // 8), max(place, step), 32 // steps)


def skewed_rows(kernel: Kernel) -> Kernel:
    """Return the kernel with skewed rows where that avoids conflicts."""
    return replace(kernel, parts=tuple(map(_skewed, kernel.parts)))


def _skewed(part: Part) -> Part:
    statements = (*part.before, *part.body, *part.after)
    arrays = {n.name: n for s in statements for n in nodes(s) if _is_array(n)}
    found: dict[str, set[Access]] = {}
    for array, access in (a for s in statements for n in nodes(s) if isinstance(n, st.Sums) for a in _accesses(n)):
        if array in arrays:
            width = 2 if arrays[array].in_memory else 4
            found.setdefault(array, set()).add(replace(access, width=width))
    turns = {array: turn for array, of in found.items() if (turn := _turn(of, arrays[array].size)) is not None}
    if not turns:
        return part
    turns |= {f"next_{array}": turn for array, turn in turns.items()}
    return replace(part, before=_map(part.before, turns), body=_map(part.body, turns), after=_map(part.after, turns))


def _is_array(n: Any) -> bool:
    """Return whether a node declares an array of a team, in shared memory, of floats or halves."""
    return isinstance(n, st.Allocate) and n.space is Space.TEAM and not n.scratch and n.dtype in ("f32", "bf16", "f16")


def _accesses(s: st.Sums) -> Iterator[tuple[str, Access]]:
    """Yield the accesses to fragments, of factors and of what is computed at the sums' places, by their arrays."""
    if not s.fragments or any(steps.term.how is not How.REGISTERS for steps in s.steps):
        return
    for steps in s.steps:
        for line in steps.body:
            assert isinstance(line, st.Apply)
            for axis, value in zip((s.run, s.lane), line.operands, strict=True):
                for e in _elements(value):
                    place, step = _stride(e, axis), _stride(e, steps.term)
                    if place and step:
                        yield e.array, factor(place, step, 8 if e.dtype == "f32" else 16)
    for line in s.finish:
        for e in _elements(line):
            run, lane = _stride(e, s.run), _stride(e, s.lane)
            if run and lane:
                yield e.array, Access(run, 2 * lane, max(run, lane))


def _elements(root: Any) -> Iterator[Element]:
    return (n for n in nodes(root) if isinstance(n, Element))


def _stride(e: Element, axis: st.Axis) -> int | None:
    return next((e.at.stride_of(v) for v in e.at.variables() if v.name == axis.variable), None)


def _turn(accesses: set[Access], size: int) -> tuple[int, int] | None:
    """Return the length of an array's rows and their skew; None where its rows are no whole number of banks long."""
    (length, *others) = {a.length for a in accesses}
    if others or size % length or not all(a.rows_are_whole for a in accesses):
        return None
    skew = min(SKEWS, key=lambda n: (sum(conflicts(a, n) for a in accesses), n))
    (width,) = {a.width for a in accesses}
    return (length, skew * 4 // width) if skew else None


def _map(node: Any, turns: Mapping[str, tuple[int, int]]) -> Any:
    """Return statements with all indices of some arrays turned."""
    if isinstance(node, tuple):
        return tuple(_map(inner, turns) for inner in node)
    if not isinstance(node, Struct) or isinstance(node, Expr):
        return node
    of_any_kind: Any = node
    made = replace(of_any_kind, **{name: _map(getattr(node, name), turns) for name in field_names(type(node))})
    if isinstance(made, Element) and made.array in turns:
        length, skew = turns[made.array]
        row, column = made.at // length, made.at % length
        return replace(made, at=row * length + (column + row * skew) % length)
    return made
