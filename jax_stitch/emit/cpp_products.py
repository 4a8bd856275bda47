"""Matrix products inside loops in teams as C++: steps that do nothing else are blocks of ``runtime/product.h``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING

from msgspec import Struct

from jax_stitch.emit.cpp_values import ctype
from jax_stitch.indices.expr import Expr, var
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Fused, Ref, Value
from jax_stitch.loops.blocks import LEAST_LANES, LEAST_STEPS, TYPES

if TYPE_CHECKING:
    from jax_stitch.emit.cpp_statements import Statements

_MOST_ROWS = _MOST_APART = 8
"""Rows of a block, and matrices that one row is multiplied by together: there is an address of each."""


class _Read(Struct, frozen=True):
    """An element that a step reads: where that of the first step is, and how far those of steps are apart."""

    array: str
    first: Expr
    step: int
    is_wide: bool
    """Whether neighbouring lanes read neighbours; else all read the same."""


class _Term(Struct, frozen=True):
    """What each step adds to a sum: a product of what all lanes share and of what lies in a vector."""

    sum: str
    dtype: str
    shared: _Read
    wide: _Read


def product_lines(writer: Statements, s: st.Sums, steps: st.Steps) -> list[str] | None:
    """Return steps that only multiply elements of arrays and add the products, as blocks of rows. Return None for other
    steps, and for so few that a compiler makes straight code of them.
    """
    terms = _products(s, steps)
    if terms is None:
        return None
    first = from_zero(s)
    return [_text(writer, s, steps, block, first) for block in _blocks(terms)]


def from_zero(s: st.Sums) -> frozenset[str]:
    """Return the names of the sums, if each is one product and nothing else: blocks may then begin at zero, without
    zeros in memory before. Return none if one of them is more than that, since a block has several sums."""
    terms = [_products(s, steps) if steps.joins is None else None for steps in s.steps]
    counts = Counter(term.sum for of_steps in terms for term in of_steps or ())
    return frozenset() if None in terms or any(count > 1 for count in counts.values()) else frozenset(counts)


def _products(s: st.Sums, steps: st.Steps) -> list[_Term] | None:
    if steps.term.extent < LEAST_STEPS or s.lane.extent < LEAST_LANES:
        return None
    return _terms(s, steps)


def _terms(s: st.Sums, steps: st.Steps) -> list[_Term] | None:
    sums = {sum_.name for sum_ in s.sums if not sum_.combiner}
    values: dict[str, Value] = {}
    terms: list[_Term] = []
    for line in steps.body:
        match line:
            case st.Define(name, _, value):
                values[name] = value
            case st.Assign(Ref(name, dtype) as target, Fused(_, left, right, addend)) if addend == target:
                reads = [_read(values, v, dtype, steps.term.variable, s.lane.variable) for v in (left, right)]
                wide = [r for r in reads if r is not None and r.is_wide]
                shared = [r for r in reads if r is not None and not r.is_wide]
                if name not in sums or len(wide) != 1 or len(shared) != 1:
                    return None
                terms.append(_Term(name, dtype, shared[0], wide[0]))
            case _:
                return None
    # A place that is data is computed in each step.
    places = {v.name for t in terms for r in (t.shared, t.wide) for v in r.first.variables()}
    return None if places & values.keys() else terms


def _read(values: dict[str, Value], value: Value, dtype: str, term: str, lane: str) -> _Read | None:
    """Return the read of a factor that is an element as stored, at an address with a constant stride."""
    if isinstance(value, Ref):
        value = values.get(value.name, value)
    if not isinstance(value, Element) or value.dtype != dtype or dtype not in TYPES or value.vector:
        return None
    first, step = _without(value.at, term)
    rest, along = _without(first, lane)
    left = {v.name for v in rest.variables()}
    return None if left & {term, lane} or along not in (0, 1) else _Read(value.array, first, step, along == 1)


def _without(e: Expr, name: str) -> tuple[Expr, int]:
    """Return an index with a variable set to zero, and its stride by that variable; itself and 0 if it has none."""
    moves = [(v, step) for v in e.variables() if v.name == name and (step := e.stride_of(v)) is not None]
    if len(moves) != 1:
        return e, 0
    variable, step = moves[0]
    return e - var(name, low=variable.low, high=variable.high) * step, step


class _Block(Struct, frozen=True):
    """Terms that are done together: rows that multiply the same vector, or ``apart`` one row that multiplies others."""

    terms: tuple[_Term, ...]
    apart: bool = False


def _blocks(terms: Iterable[_Term]) -> Iterator[_Block]:
    alike: dict[tuple[_Read, int], list[_Term]] = {}
    for term in terms:
        alike.setdefault((term.wide, term.shared.step), []).append(term)
    of_one_row: dict[tuple[_Read, int, str], list[_Term]] = {}
    for rows in alike.values():
        if len(rows) == 1:
            (term,) = rows
            of_one_row.setdefault((term.shared, term.wide.step, term.dtype), []).append(term)
        else:
            yield from (_Block(some) for some in _divided(rows, _MOST_ROWS))
    for several in of_one_row.values():
        yield from (_Block(some, apart=len(some) > 1) for some in _divided(several, _MOST_APART))


def _divided(terms: Sequence[_Term], most: int) -> Iterator[tuple[_Term, ...]]:
    """Yield terms in parts as equal as can be."""
    each = ceil(len(terms) / ceil(len(terms) / most))
    yield from (tuple(terms[k : k + each]) for k in range(0, len(terms), each))


def _text(writer: Statements, s: st.Sums, steps: st.Steps, block: _Block, first: Collection[str]) -> str:
    count, start = str(steps.term.extent), ""
    if steps.joins is not None:
        count, start = "end_ - from_", "from_ * "

    def address(read: _Read) -> str:
        return f"&{read.array}[{writer.values.index(read.first)}{_after(start, read.step)}]"

    one, sums = block.terms[0], ", ".join(f"ST_SUM({term.sum})" for term in block.terms)
    ends = "_FROM_ZERO" if one.sum in first else ""
    sizes = f"{ctype(one.dtype)}, {s.width}, {count}"
    if block.apart:
        rights = ", ".join(address(term.wide) for term in block.terms)
        factors = f"{address(one.shared)}, {one.shared.step}, ({rights}), {one.wide.step}"
        return f"ST_PRODUCT_APART{ends}({sizes}, {factors}, ({sums}))"
    lefts = ", ".join(address(term.shared) for term in block.terms)
    factors = f"({lefts}), {one.shared.step}, {address(one.wide)}, {one.wide.step}"
    return f"ST_PRODUCT{ends}({sizes}, {factors}, ({sums}))"


def _after(start: str, step: int) -> str:
    """Return how far the first step of a block of steps is from the first of all, as a term of an index."""
    return f" + {start}{step}" if start else ""
