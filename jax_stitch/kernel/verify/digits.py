"""Whether an index takes each value of [0, size) once, as its variables go through their ranges.

Each variable is a number in mixed radix: divisions and remainders take out some of its digits. The index is right where
the digits of all variables together are those of a number below the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from math import prod

import numpy as np

from jax_stitch.ir.indices.expr import Atom, Div, Expr, Var, Within
from jax_stitch.kernel.verify.intervals import evaluated

Digit = tuple[int, int]
"""A digit's weight in the index, and how many values it has."""

MOST_POINTS = 1 << 20
"""Elements that are counted one by one, where digits do not tell."""


class NotDigits(Exception):
    """The index is not made of its variables' digits."""


def covers(writes: Sequence[tuple[Expr, Mapping[str, int]]], size: int) -> bool | None:
    """Return whether indices, whose variables are below what stands beside them, take each value of [0, size) once
    together; None where that is not known.
    """
    try:
        return _by_digits(writes, size)
    except NotDigits:
        return _one_by_one(writes, size)


def _by_digits(writes: Sequence[tuple[Expr, Mapping[str, int]]], size: int) -> bool:
    first, ranges = writes[0]
    if any(e.terms != first.terms or r != ranges for e, r in writes):
        raise NotDigits
    digits, used = _digits(first.terms, ranges)
    if any(n > 1 and name not in used for name, n in ranges.items()):
        return False  # An element is written again for each value of the variable.
    if any(weight < 0 for weight, _ in digits):
        raise NotDigits
    offsets = sorted(e.offset for e, _ in writes)
    holes: list[Digit] = []
    weight = 1
    for own, count in sorted(digits):
        if own % weight or own < weight:
            raise NotDigits
        if own > weight:
            holes.append((weight, own // weight))
        weight = own * count
    if size % weight:
        raise NotDigits
    if size > weight:
        holes.append((weight, size // weight))
    expected = sorted(sum(w * k for (w, _), k in zip(holes, ks, strict=True)) for ks in _counted(holes, len(offsets)))
    return offsets == expected


def _counted(holes: Sequence[Digit], count: int) -> Iterable[tuple[int, ...]]:
    if prod(n for _, n in holes) != count:
        return [()] if not holes else []
    return product(*(range(n) for _, n in holes))


def _digits(terms: Sequence[tuple[Atom, int]], ranges: Mapping[str, int]) -> tuple[list[Digit], set[str]]:
    """Return the digits of a sum, and the variables that they are of."""
    pieces: dict[Expr | str, list[tuple[int, int, int]]] = {}
    sizes: dict[Expr | str, int] = {}
    used: set[str] = set()
    for atom, weight in terms:
        base, low, high = _piece(atom, ranges, sizes, used)
        pieces.setdefault(base, []).append((low, high, weight))
    digits: list[Digit] = []
    for base, own in pieces.items():
        bounds = sorted({1, sizes[base], *(b for low, high, _ in own for b in (low, high))})
        for a, b in pairwise(bounds):
            if b % a:
                raise NotDigits
            weight = sum(w * (a // low) for low, high, w in own if low <= a < high)
            if weight == 0:
                raise NotDigits
            digits.append((weight, b // a))
    return digits, used


def _piece(
    atom: Atom, ranges: Mapping[str, int], sizes: dict[Expr | str, int], used: set[str]
) -> tuple[Expr | str, int, int]:
    """Return what an atom takes digits of, from which weight on, and below which."""
    if isinstance(atom, Var):
        if atom.name not in ranges:
            raise NotDigits
        used.add(atom.name)
        sizes[atom.name] = ranges[atom.name]
        return atom.name, 1, max(1, ranges[atom.name])
    if isinstance(atom, Within):
        raise NotDigits
    if len(atom.of.terms) == 1 and atom.of.offset == 0 and atom.of.terms[0][1] == 1:
        base, low, high = _piece(atom.of.terms[0][0], ranges, sizes, used)
    else:
        base, low, high = atom.of, 1, _whole(atom.of, ranges, used)
        sizes[base] = high
    if high % (low * atom.by) and low * atom.by < high:
        raise NotDigits
    if isinstance(atom, Div):
        return base, min(low * atom.by, high), high
    return base, low, min(high, low * atom.by)


def _whole(inner: Expr, ranges: Mapping[str, int], used: set[str]) -> int:
    """Return the number of values of an index that takes each from 0 on once."""
    digits, own = _digits(inner.terms, ranges)
    weight = 1
    for w, count in sorted(digits):
        if w != weight:
            raise NotDigits
        weight *= count
    if inner.offset or own & used:
        raise NotDigits
    used |= own
    return weight


def _one_by_one(writes: Sequence[tuple[Expr, Mapping[str, int]]], size: int) -> bool | None:
    if size > MOST_POINTS or sum(prod(r.values()) for _, r in writes) > 2 * MOST_POINTS:
        return None
    counts = np.zeros(size, np.int64)
    for e, ranges in writes:
        axes = len(ranges)
        values = {
            name: np.arange(n).reshape([-1 if k == m else 1 for m in range(axes)])
            for k, (name, n) in enumerate(ranges.items())
        }
        at = np.broadcast_to(evaluated(e, values), list(ranges.values())).reshape(-1)
        if at.size and (at.min() < 0 or at.max() >= size):
            return False
        counts += np.bincount(at, minlength=size)
    return bool(np.all(counts == 1))
