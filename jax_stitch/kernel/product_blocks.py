"""Matrix products in blocks of registers (register tiling): steps of a team's one thread that do nothing but multiply
elements and add the products become ``multiply`` intrinsics, whose sums stay in registers through all steps.

Rows that multiply the same vector are one block: it is loaded once for all of them. See ``backend/runtime/product.h``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from msgspec import Struct

from jax_stitch.ir.indices.expr import Expr, var
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Fused, Ref, Value
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.threads import How
from jax_stitch.kernel.walk import map_sweeps
from jax_stitch.util.values import replace

LEAST_STEPS, LEAST_LANES = 8, 8
"""The steps of each sum, and the neighbouring places: of fewer a compiler makes straight code."""

TYPES = frozenset({"f32", "f64"})

_MOST_ROWS = _MOST_APART = 8
"""Rows of a block, and matrices that one row is multiplied by together: there is an address of each."""


class _Term(Struct, frozen=True):
    """A product that each step adds to a sum: ``shared`` is one element for all lanes, ``wide`` one for each."""

    sum: str
    shared: Element
    wide: Element


def product_blocks(kernel: Kernel) -> Kernel:
    """Return the kernel with the products of teams of one thread in blocks."""
    return map_sweeps(kernel, lambda s: (_in_blocks(s),) if isinstance(s, st.Sums) else (s,))


def _in_blocks(s: st.Sums) -> st.Sums:
    """Return a sweep with those of its steps in blocks that can be."""
    if s.split > 1 or s.fragments:
        return s
    terms = [_products(s, steps) for steps in s.steps]
    at_zero = from_zero(s, terms)
    steps = tuple(
        steps if of_steps is None else _blocked(steps, of_steps, at_zero)
        for steps, of_steps in zip(s.steps, terms, strict=True)
    )
    sums = tuple(replace(sum_, first=None) if sum_.name in at_zero else sum_ for sum_ in s.sums)
    return replace(s, sums=sums, steps=steps)


def _blocked(steps: st.Steps, terms: Sequence[_Term], at_zero: frozenset[str]) -> st.Steps:
    body: list[st.Statement] = []
    for block in _blocks(terms, steps.term.variable):
        shared, wide = (tuple(dict.fromkeys(t.shared for t in block))), tuple(dict.fromkeys(t.wide for t in block))
        name = "multiply_from_zero" if block[0].sum in at_zero else "multiply"
        cells = tuple(t.sum for t in block)
        if len(wide) == 1:  # Rows may well be equal.
            shared = tuple(t.shared for t in block)
        body.append(st.Apply(name, cells, sizes=(len(shared), len(wide)), operands=(*shared, *wide)))
    return replace(steps, term=replace(steps.term, how=How.REGISTERS), body=tuple(body))


def from_zero(s: st.Sums, terms: Sequence[Sequence[_Term] | None]) -> frozenset[str]:
    """Return the names of the sums, if each is one product and nothing else: blocks may then begin at zero, without
    zeros in memory before. Return none if one of them is more than that, since a block has several sums.
    """
    plain = [of if steps.joins is None else None for of, steps in zip(terms, s.steps, strict=True)]
    counts = Counter(term.sum for of in plain for term in of or ())
    return frozenset() if None in plain or any(count > 1 for count in counts.values()) else frozenset(counts)


def _products(s: st.Sums, steps: st.Steps) -> list[_Term] | None:
    """Return the products of steps; None of steps that do something else, or are few."""
    if steps.term.extent < LEAST_STEPS or s.lane.extent < LEAST_LANES:
        return None
    sums = {sum_.name for sum_ in s.sums if not sum_.combiner}
    values: dict[str, Value] = {}
    terms: list[_Term] = []
    for line in steps.body:
        match line:
            case st.Define(name, _, value):
                values[name] = value
            case st.Assign(Ref(name, dtype) as target, Fused(_, left, right, addend)) if addend == target:
                factors = [_factor(values, v, dtype, s, steps) for v in (left, right)]
                if name not in sums or None in factors:
                    return None
                shared, wide = sorted(filter(None, factors), key=lambda f: f[1])
                if (shared[1], wide[1]) != (0, 1):
                    return None
                terms.append(_Term(name, shared[0], wide[0]))
            case _:
                return None
    # A place that is data is computed in each step.
    places = {v.name for t in terms for e in (t.shared, t.wide) for v in e.at.variables()}
    return None if places & values.keys() else terms


def _factor(
    values: dict[str, Value], value: Value, dtype: str, s: st.Sums, steps: st.Steps
) -> tuple[Element, int] | None:
    """Return a factor that is an element as stored, at an address with a constant stride, and that stride along
    lanes: 0 or 1.
    """
    if isinstance(value, Ref):
        value = values.get(value.name, value)
    if not isinstance(value, Element) or value.dtype != dtype or dtype not in TYPES or value.vector:
        return None
    term, lane = steps.term.variable, s.lane.variable
    first, _ = without(value.at, term)
    rest, along = without(first, lane)
    is_affine = not {v.name for v in rest.variables()} & {term, lane}
    return (value, along) if is_affine and along in (0, 1) else None


def without(e: Expr, name: str) -> tuple[Expr, int]:
    """Return an index with a variable set to zero, and its stride by that variable; itself and 0 if it has none."""
    moves = [(v, step) for v in e.variables() if v.name == name and (step := e.stride_of(v)) is not None]
    if len(moves) != 1:
        return e, 0
    variable, step = moves[0]
    return e - var(name, low=variable.low, high=variable.high) * step, step


def _blocks(terms: Iterable[_Term], term: str) -> Iterator[Sequence[_Term]]:
    """Yield terms that are done together: rows that multiply the same vector, or one row that multiplies several."""
    alike: dict[tuple[Element, int], list[_Term]] = {}
    for t in terms:
        alike.setdefault((t.wide, without(t.shared.at, term)[1]), []).append(t)
    of_one_row: dict[tuple[Element, int, str], list[_Term]] = {}
    for rows in alike.values():
        if len(rows) == 1:
            (t,) = rows
            of_one_row.setdefault((t.shared, without(t.wide.at, term)[1], t.shared.dtype), []).append(t)
        else:
            yield from _divided(rows, _MOST_ROWS)
    for several in of_one_row.values():
        yield from _divided(several, _MOST_APART)


def _divided(terms: Sequence[_Term], most: int) -> Iterator[Sequence[_Term]]:
    """Yield terms in parts as equal as can be."""
    each = ceil(len(terms) / ceil(len(terms) / most))
    yield from (terms[k : k + each] for k in range(0, len(terms), each))
