"""How an address goes on from one value of a variable to the next: in one piece, in runs, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jax_stitch.analysis.maps import Index
from jax_stitch.ir.indices import Expr, linearize
from jax_stitch.ir.indices.expr import Div, Mod, Var, Within

LEAST_RUN, VECTOR = 16, 8
"""Neighbours in memory that mostly fill vectors, and those of one vector of floats (AVX2), which fill it wholly."""


def run_length(accesses: Iterable[tuple[Index, tuple[int, ...]]], name: str, size: int, step: int = 1) -> int:
    """Return the shortest run of values of variable ``name`` that are neighbours in memory in every buffer, or read
    one element there, if it fills vectors.

    Neighbours are ``step`` elements apart. ``size`` is how many values the variable has: what is returned where all are
    one run, or runs are too short.
    """
    length = size
    for index, dims in accesses:
        address = linearize(index, dims)
        length = min([length, *moduli(address, name, step), *(n for n in _spans(address, name) if n >= LEAST_RUN)])
    fills = length * step >= LEAST_RUN or length * step == VECTOR
    return length if fills and size % length == 0 else size


def moduli(address: Expr, name: str, step: int = 1) -> Iterator[int]:
    """Yield after how many values of the variable the address no longer goes on by ``step``."""
    for atom, c in address.terms:
        if c == step and isinstance(atom, Within):
            yield from moduli(atom.of, name)
        elif c == step and isinstance(atom, Mod) and is_unit_stride(atom.of, name):
            yield atom.by


def _spans(address: Expr, name: str) -> Iterator[int]:
    """Yield for how many values of the variable a term of the address is the same, where it is for several."""
    for atom, _ in address.terms:
        if isinstance(atom, Div) and is_unit_stride(atom.of, name):
            yield atom.by
        elif not isinstance(atom, Var):
            yield from _spans(atom.of, name)


def is_unit_stride(address: Expr, name: str) -> bool:
    """Return whether the next value of variable ``name`` mostly reads the next address."""
    for atom, c in address.terms:
        if c != 1:
            continue
        if isinstance(atom, Var) and atom.name == name:
            return True
        if isinstance(atom, Mod) and atom.by >= 8 and is_unit_stride(atom.of, name):
            return True
        if isinstance(atom, Within) and is_unit_stride(atom.of, name):
            return True
    return False
