"""Rows of shared memory that begin in other banks than their neighbours (skewing): arrays whose elements a warp reads
for tensor cores, some from each of several rows, are laid out with each row turned by a few elements more than the last.

Else the elements of a column lie in one bank, and are read one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from jax_stitch.indices.expr import Expr
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element
from jax_stitch.kernel.model import Kernel, Part
from jax_stitch.kernel.threads import How, Space
from jax_stitch.kernel.walk import field_names, nodes
from jax_stitch.util.values import replace

BANKS = 32
"""Of shared memory, with a word of four bytes each."""

SKEWS = (0, 4, 8)
"""Elements by which a row is turned further than the one before: of a fragment, a warp reads four elements of eight
rows, or eight of four.
"""


class _Read(Struct, frozen=True):
    """How far the elements of neighbouring places of a fragment, and of neighbouring steps, are apart."""

    place: int
    step: int


def conflicts(place: int, step: int, skew: int = 0) -> int:
    """Return how often a bank is asked when a warp reads four steps of eight places, which lie so far apart."""
    row = max(place, step)
    addresses = {a + a // row * skew for g in range(8) for t in range(4) for a in (g * place + t * step,)}
    return max(Counter(a % BANKS for a in addresses).values())


def skewed_rows(kernel: Kernel) -> Kernel:
    """Return the kernel with skewed rows where that avoids conflicts."""
    return replace(kernel, parts=tuple(map(_skewed, kernel.parts)))


def _skewed(part: Part) -> Part:
    statements = (*part.before, *part.body, *part.after)
    sizes = {n.name: n.size for s in statements for n in nodes(s) if _is_array(n)}
    reads: dict[str, set[_Read]] = {}
    for array, read in (r for s in statements for n in nodes(s) if isinstance(n, st.Sums) for r in _reads(n)):
        if array in sizes:
            reads.setdefault(array, set()).add(read)
    turns = {array: turn for array, of in reads.items() if (turn := _turn(of, sizes[array])) is not None}
    if not turns:
        return part
    turns |= {f"next_{array}": turn for array, turn in turns.items()}
    return replace(part, before=_map(part.before, turns), body=_map(part.body, turns), after=_map(part.after, turns))


def _is_array(n: Any) -> bool:
    """Return whether a node declares an array of a team, in shared memory, of words of four bytes."""
    return isinstance(n, st.Allocate) and n.space is Space.TEAM and not n.scratch and n.dtype not in _OTHER_WORDS


_OTHER_WORDS = frozenset({"f64", "s64", "u64", "pred", "s8", "u8", "s16", "u16"})


def _reads(s: st.Sums) -> Iterator[tuple[str, _Read]]:
    """Yield the elements that fragments of factors have, by their arrays."""
    for steps in s.steps if s.fragments else ():
        for line in steps.body if steps.term.how is How.REGISTERS else ():
            assert isinstance(line, st.Apply)
            for axis, factor in zip((s.run, s.lane), line.operands, strict=True):
                for e in (n for n in nodes(factor) if isinstance(n, Element)):
                    strides = {v.name: e.at.stride_of(v) for v in e.at.variables()}
                    place, step = strides.get(axis.variable), strides.get(steps.term.variable)
                    if place is not None and step is not None:
                        yield e.array, _Read(place, step)


def _turn(reads: set[_Read], size: int) -> tuple[int, int] | None:
    """Return the length of an array's rows and their skew; None where its rows are no whole number of banks long."""
    lengths = {max(r.place, r.step) for r in reads}
    length = lengths.pop()
    if lengths or length % BANKS or size % length or any(min(r.place, r.step) != 1 for r in reads):
        return None
    skew = min(SKEWS, key=lambda n: (sum(conflicts(r.place, r.step, n) for r in reads), n))
    return (length, skew) if skew else None


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
