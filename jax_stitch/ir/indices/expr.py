"""Integer index expressions in a canonical form, so that equal indices compare equal.

An expression is ``const + sum(coefficient * atom)``, where an atom is a variable, a floor division or a remainder of an
expression by a positive constant. Simplification is by ranges (a variable is known to lie in ``[low, high]``) and by
putting back together what a reshape took apart: ``c * (e // c) + e % c`` is ``e``. That is what lets a chain of
reshapes and broadcasts end in the very index a buffer was written with, and so decides locality exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

from jax_stitch.util.interned import Interned


class Var(Interned):
    """A named index with its inclusive range."""

    __slots__ = __match_args__ = ("name", "low", "high")

    name: str
    low: int
    high: int

    def __str__(self) -> str:
        return self.name


class Div(Interned):
    """``floor(of / by)``, ``by > 1``."""

    __slots__ = __match_args__ = ("of", "by")

    of: Expr
    by: int

    @property
    def low(self) -> int:
        return self.of.low // self.by

    @property
    def high(self) -> int:
        return self.of.high // self.by

    def __str__(self) -> str:
        return f"({self.of} / {self.by})"


class Mod(Interned):
    """``of - by * floor(of / by)``, ``by > 1``."""

    __slots__ = __match_args__ = ("of", "by")

    of: Expr
    by: int

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        return self.by - 1

    def __str__(self) -> str:
        return f"({self.of} % {self.by})"


class Within(Interned):
    """``of``, where a condition on the way to it says that it lies in a narrower range than its variables tell."""

    __slots__ = __match_args__ = ("of", "low", "high")

    of: Expr
    low: int
    high: int

    def __str__(self) -> str:
        return f"({self.of})"


Atom = Var | Div | Mod | Within


class Expr(Interned):
    """A canonical index expression; build with ``var``, ``const`` and the operators ``+ - * // %`` (the last three by
    integers). Equal expressions are one object.
    """

    __slots__ = __match_args__ = ("terms", "offset", "low", "high")

    terms: tuple[tuple[Atom, int], ...]
    offset: int
    low: int
    high: int

    def __add__(self, other: Expr | int) -> Expr:
        other = const(other) if isinstance(other, int) else other
        return _sum(self.terms + other.terms, self.offset + other.offset)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return self * -1

    def __sub__(self, other: Expr | int) -> Expr:
        return self + (other * -1)

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __mul__(self, by: int) -> Expr:
        if by == 0:
            return const(0)
        return _sum(tuple((a, c * by) for a, c in self.terms), self.offset * by)

    __rmul__ = __mul__

    def __floordiv__(self, by: int) -> Expr:
        return _div(self, by)

    def __mod__(self, by: int) -> Expr:
        return _mod(self, by)

    @property
    def is_const(self) -> bool:
        return not self.terms

    def variables(self) -> frozenset[Var]:
        """Return all variables that occur, at any depth."""
        variables: set[Var] = set()
        for atom, _ in self.terms:
            if isinstance(atom, Var):
                variables.add(atom)
            else:
                variables |= atom.of.variables()
        return frozenset(variables)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value where each variable has the given one: whole numbers, or arrays of them."""

        def atom_value(atom: Atom) -> Any:
            if isinstance(atom, Var):
                return values[atom.name]
            inner = atom.of.evaluate(values)
            if isinstance(atom, Within):
                return inner
            return inner // atom.by if isinstance(atom, Div) else inner % atom.by

        return self.offset + sum(c * atom_value(a) for a, c in self.terms)

    def stride_of(self, variable: Var) -> int | None:
        """Return the constant step of the value per step of ``variable``; ``None`` where it is not affine in it."""
        step = 0
        for atom, coefficient in self.terms:
            inner = atom.of.stride_of(variable) if isinstance(atom, Within) else None
            if atom == variable:
                step += coefficient
            elif inner is not None:
                step += coefficient * inner
            elif not isinstance(atom, Var) and variable in atom.of.variables():
                return None
        return step

    def __str__(self) -> str:
        text = ""
        for atom, c in self.terms:
            piece = str(atom) if abs(c) == 1 else f"{atom} * {abs(c)}"
            text += (f" {'-' if c < 0 else '+'} " if text else ("-" if c < 0 else "")) + piece
        if self.offset or not text:
            text += f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if text else str(self.offset)
        return text


def const(value: int) -> Expr:
    return Expr((), value, value, value)


def var(name: str, size: int | None = None, *, low: int = 0, high: int | None = None) -> Expr:
    """Return a variable in ``[0, size)`` or ``[low, high]``; with a single possible value it is that constant."""
    top = (size - 1 if size is not None else high) if high is None else high
    assert top is not None
    if low >= top:
        return const(low)
    return Expr(((Var(name, low, top), 1),), 0, low, top)


def within(e: Expr, low: int, high: int) -> Expr:
    """Return ``e``, known to lie in ``[low, high]``."""
    if low == high:
        return const(low)
    if e.low >= low and e.high <= high:
        return e
    return Expr(((Within(e, low, high), 1),), 0, low, high)


def substituted(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """Return an expression with expressions in place of variables, by their names."""
    total = const(e.offset)
    for atom, c in e.terms:
        total += _substituted(atom, values) * c
    return total


def _substituted(atom: Atom, values: Mapping[str, Expr]) -> Expr:
    match atom:
        case Var(name, low, high):
            return values[name] if name in values else var(name, low=low, high=high)
        case Within(of, low, high):
            return within(substituted(of, values), low, high)
        case Div(of, by):
            return substituted(of, values) // by
        case Mod(of, by):
            return substituted(of, values) % by


def _key(atom: Atom) -> tuple[int, str]:
    return (0 if isinstance(atom, Var) else 1, str(atom))


def _make(terms: dict[Atom, int], offset: int) -> Expr:
    kept = sorted(((a, c) for a, c in terms.items() if c), key=lambda t: _key(t[0]))
    low = high = offset
    for atom, c in kept:
        low += c * (atom.low if c > 0 else atom.high)
        high += c * (atom.high if c > 0 else atom.low)
    return Expr(tuple(kept), offset, low, high)


@lru_cache(maxsize=1 << 16)
def _sum(terms: tuple[tuple[Atom, int], ...], offset: int) -> Expr:
    collected: dict[Atom, int] = {}
    for atom, c in terms:
        collected[atom] = collected.get(atom, 0) + c
    while True:
        merged = _recombine(collected)
        if merged is None:
            return _make(collected, offset)
        removed, added = merged
        for atom in removed:
            del collected[atom]
        offset += added.offset
        for atom, c in added.terms:
            collected[atom] = collected.get(atom, 0) + c


def _recombine(terms: dict[Atom, int]) -> tuple[tuple[Atom, Atom], Expr] | None:
    """Return two terms as one: ``k*c*(e // c) + k*(e % c) = k*e``, and ``k*c*((e // c) % m) + k*(e % c) = k*(e %
    (c*m))``.
    """
    for rest, k in terms.items():
        if not isinstance(rest, Mod) or not k:
            continue
        e, c = rest.of, rest.by
        whole = next(iter((e // c).terms), None)
        quotient = e // c
        if whole is not None and len(quotient.terms) == 1 and quotient.offset == 0 and whole[1] == 1:
            if terms.get(whole[0]) == k * c:
                return (rest, whole[0]), e * k
        for other, factor in terms.items():
            if isinstance(other, Mod) and factor == k * c and other.of == quotient:
                return (rest, other), (e % (c * other.by)) * k
    return None


@lru_cache(maxsize=1 << 16)
def _div(e: Expr, by: int) -> Expr:
    assert by > 0
    if by == 1:
        return e
    if e.is_const:
        return const(e.offset // by)
    exact = {a: c // by for a, c in e.terms if c % by == 0}
    rest = _remaining(e, by)
    whole = _sum(tuple(exact.items()), (e.offset - rest.offset) // by)
    if rest.low >= 0 and rest.high < by:
        return whole
    if len(rest.terms) == 1 and rest.offset == 0 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Div):
            return whole + _div(atom.of, atom.by * by)
        if isinstance(atom, Mod) and atom.by % by == 0:
            return whole + _mod(_div(atom.of, by), atom.by // by)
    for g, large, small in _graded(rest, by):
        # (g*a + b) // (g*m) = a // m where 0 <= b < g.
        if small.low >= 0 and small.high < g:
            return whole + _div(large, by // g)
    return whole + Expr(((Div(rest, by), 1),), 0, rest.low // by, rest.high // by)


def _remaining(e: Expr, by: int) -> Expr:
    """Return ``e`` less multiples of ``by``, never negative: there C++, which divides towards zero, agrees with
    ``floor``.
    """
    rest = _make({a: c for a, c in e.terms if c % by}, e.offset % by)
    below = -(rest.low // by) * by
    return _make(dict(rest.terms), rest.offset + below) if below > 0 else rest


def _graded(e: Expr, by: int) -> Iterable[tuple[int, Expr, Expr]]:
    """Yield the ways to write ``e`` as ``g * large + small`` with ``g`` a proper common divisor of ``by`` and some
    coefficients.
    """
    for g in sorted({gcd(c, by) for _, c in e.terms}, reverse=True):
        if 1 < g < by:
            large = _make({a: c // g for a, c in e.terms if c % g == 0}, e.offset // g)
            yield g, large, _make({a: c for a, c in e.terms if c % g}, e.offset % g)


@lru_cache(maxsize=1 << 16)
def _mod(e: Expr, by: int) -> Expr:
    assert by > 0
    if by == 1:
        return const(0)
    rest = _remaining(e, by)
    if rest.is_const:
        return const(rest.offset)
    if rest.low >= 0 and rest.high < by:
        return rest
    if len(rest.terms) == 1 and rest.offset == 0 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Mod) and atom.by % by == 0:
            return _mod(atom.of, by)
    for g, large, small in _graded(rest, by):
        # (g*a + b) % (g*m) = g*(a % m) + b where 0 <= b < g.
        if small.low >= 0 and small.high < g:
            return _mod(large, by // g) * g + small
    return Expr(((Mod(rest, by), 1),), 0, 0, by - 1)


def linearize(index: Sequence[Expr], dims: Sequence[int]) -> Expr:
    """Return row-major position of ``index`` in an array of ``dims``."""
    position = const(0)
    for i, size in zip(index, dims, strict=True):
        position = position * size + i
    return position


def delinearize(position: Expr, dims: Iterable[int]) -> tuple[Expr, ...]:
    """Return the row-major index of ``position`` in an array of ``dims``."""
    sizes = list(dims)
    index: list[Expr] = []
    for k, size in enumerate(reversed(sizes)):
        outermost = k == len(sizes) - 1 and size > 1
        index.append(position if outermost else position % size)
        position = position // size
    return tuple(reversed(index))
