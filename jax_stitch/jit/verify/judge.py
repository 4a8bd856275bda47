"""Whether two results of the same operations differ by more than rounding may make them.

How much that is depends on the operations: a sum of large terms that cancel loses every digit, a comparison of nearly
equal numbers may go either way. So it is measured. The reference is computed again on arguments that are moved by
about a unit in the last place, and what that changes is what rounding may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]

_SPREADS = 16.0
"""How many times what moved arguments change a result may differ."""

_UNITS = 16.0
"""How many units in the last place of the coarsest type it may differ in any case."""

_WANDERING = 1e-4
"""How far a value may move, of its own size and the others', before nothing can be said of it."""

_AS_NEAR = 4.0
"""How many times as far from the exact result as the reference one may be."""


def disagreement(
    got: Array,
    wanted: Array,
    moved: Sequence[Array],
    unit: float,
    *,
    special: bool = False,
    exact: Array | None = None,
) -> str | None:
    """Return what is wrong with a result, or ``None``. ``moved`` are the reference's results on moved arguments,
    ``unit`` is the relative unit in the last place of the coarsest floating type among the operations. On ``special``
    arguments a NaN may stand where the reference has a number: the maximum of XLA's CPU compiler loses some. ``exact``
    is the result without roundings: what is about as near to it as the reference is right.
    """
    if got.size == 0:
        return None
    if not jnp.issubdtype(wanted.dtype, jnp.inexact):
        steady = np.all([np.equal(m, wanted) for m in moved], axis=0)
        return _told(steady & (got != wanted) & (True if exact is None else got != exact), got, wanted)
    kind = np.complex128 if jnp.issubdtype(wanted.dtype, jnp.complexfloating) else np.float64
    g, w, ms = got.astype(kind), wanted.astype(kind), [m.astype(kind) for m in moved]
    finite = np.isfinite(w)
    steady = np.all([np.isfinite(m) == finite for m in ms], axis=0)
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.max([np.where(finite & steady, np.abs(m - w), 0.0) for m in ms], axis=0)
        typical = float(np.sqrt(np.mean(spread**2)))
        largest = float(np.max(np.abs(w), where=finite, initial=0.0))
        room = _SPREADS * (spread + typical) + _UNITS * unit * np.abs(w) + unit * largest
        room += float(jnp.finfo(wanted.dtype).tiny)
        far = np.where(finite, ~(np.abs(g - w) <= room), ~_same(g, w))
        lost = np.isnan(g) & ~np.isnan(w) if special else np.zeros(w.shape, bool)
        if exact is not None:
            e = exact.astype(kind)
            room = _AS_NEAR * np.abs(w - e) + _UNITS * unit * np.abs(e) + float(jnp.finfo(wanted.dtype).tiny)
            far &= ~(_same(g, e) | (np.abs(g - e) <= room))
    return _told(steady & far & ~lost, got, wanted)


def overflows(result: Array) -> bool:
    """Return whether floating values are no numbers, infinite, or so large that their squares are."""
    if not jnp.issubdtype(result.dtype, jnp.inexact):
        return False
    with np.errstate(invalid="ignore"):
        return bool((~(np.abs(result) <= float(jnp.finfo(result.dtype).max) ** 0.5)).any())


def wanders(result: Array, other: Array, unit: float) -> bool:
    """Return whether some floating value is elsewhere in a result that was computed from arguments moved a little;
    ``unit`` is the relative unit in the last place of the coarsest floating type.
    """
    if not jnp.issubdtype(result.dtype, jnp.inexact) or not result.size:
        return False
    kind = np.complex128 if jnp.issubdtype(result.dtype, jnp.complexfloating) else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        r, o = result.astype(kind), other.astype(kind)
        typical = float(np.sqrt(np.mean(np.abs(r) ** 2)))
        return bool((np.abs(r - o) > max(_WANDERING, _UNITS * unit) * (np.abs(r) + typical)).any())


def _same(a: Array, b: Array) -> Array:
    return (a == b) | (np.isnan(a) & np.isnan(b))


def _told(wrong: Array, got: Array, wanted: Array) -> str | None:
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"[{', '.join(map(str, at))}]" if at else "the result"
    return f"{count:,} of {wrong.size:,} elements differ; {where} is {got[at]} in place of {wanted[at]}"
