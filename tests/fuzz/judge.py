"""Whether a stitched result may stand beside ``jax.jit``'s.

Where both are equal, or floats two units in the last place apart, nothing more is asked. Where not, runs of the plain
function whose roundings are moved at random (``perturb.py``) show how far each element can be trusted: the stitched
one has to lie where these runs lie, or within four times their spread. An integer or a truth value that they all agree
on has to be that; where they do not agree, it is not judged. So it goes with NaNs and infinities. Where all runs of XLA
agree and the stitched result differs, the function in float64 decides: XLA's order of a product, say, may overflow on
the way to 0, and then ours need not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.extend.core import jaxprs_in_params

from jax_stitch.inspect.report.accuracy import reference
from tests.fuzz.draft import as_array
from tests.fuzz.perturb import perturbed
from tests.fuzz.roundings import HALVES

RUNS = 12
CONFIRMING = 48
"""Runs that have to agree before anybody is told of a wrong result."""

SPREADS = 4.0
ULPS = 4.0
FLUSHED = 64.0
"""Smallest normal numbers that a result may be where all of XLA's are 0."""
EXACT_ULPS = 16.0
"""How far a result may be from the one in float64, where XLA's are not near either."""
NO_WORSE = 2.0
"""Times XLA's own distance from the result in float64: of series that cancel, XLA's float32 has few digits."""


@dataclass(frozen=True)
class Wrong:
    """An output that is not what it can be."""

    output: int
    message: str


def arrays(results: Any) -> list[np.ndarray]:
    return [as_array(r) for r in jax.tree.leaves(results)]


def close(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether two results are as good as equal."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if not _inexact(got.dtype):
        return bool(np.array_equal(got, want))
    with np.errstate(all="ignore"):
        g, w = _wide(got), _wide(want)
        good = (g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= 2 * _eps(got.dtype) * np.abs(w))
    return bool(good.all())


def judge(
    fun: Callable[..., Any], args: Sequence[Any], got: Sequence[np.ndarray], want: Sequence[np.ndarray]
) -> list[Wrong]:
    """The outputs of a run that are wrong, given those of ``jax.jit``."""
    suspects = [k for k, (g, w) in enumerate(zip(got, want, strict=True)) if not close(g, w)]
    if not suspects:
        return []
    for k in suspects:
        if (got[k].shape, got[k].dtype) != (want[k].shape, want[k].dtype):
            return [Wrong(k, f"{got[k].dtype}{got[k].shape} in place of {want[k].dtype}{want[k].shape}")]
    # What float64 would let pass at the end is let pass first: XLA compiles the runs with moved roundings for longer.
    exact = _exact(fun, args)
    if exact is not None:
        suspects = [k for k in suspects if not _as_exact(got[k], want[k], exact[k]).all()]
        if not suspects:
            return []
    references = References(fun, args, want)
    for count in (RUNS, CONFIRMING):
        references.extend(count)
        wrong = [w for k in suspects if (w := _judged(k, got[k], references.of(k))) is not None]
        if not wrong:
            return []
    if exact is None:
        return wrong
    return [w for w in wrong if _judged(w.output, got[w.output], references.of(w.output), exact[w.output]) is not None]


def _exact(fun: Callable[..., Any], args: Sequence[Any]) -> list[np.ndarray] | None:
    """The results in float64; None where the function has none."""
    try:
        return arrays(reference(fun, tuple(args)))
    except Exception:  # The program may insist on its types in any way.
        return None


class References:
    """Results of the plain function: under ``jax.jit``, and with its roundings moved."""

    def __init__(self, fun: Callable[..., Any], args: Sequence[Any], plain: Sequence[np.ndarray]):
        closed = jax.make_jaxpr(lambda *a: jax.tree.leaves(fun(*a)))(*args)
        self.args = args
        self.ways = [jax.jit(perturbed(closed))]
        if _has_halves(closed.jaxpr):
            self.ways.append(jax.jit(perturbed(closed, excess=True)))
        self.found: list[Sequence[np.ndarray]] = [plain]
        self.seed = 0

    def extend(self, count: int) -> None:
        for _ in range(count):
            for way in self.ways:
                self.found.append(arrays(way(np.uint32(self.seed), *self.args)))
            self.seed += 1

    def of(self, output: int) -> list[np.ndarray]:
        return [run[output] for run in self.found]


def _has_halves(jaxpr: Any) -> bool:
    for equation in jaxpr.eqns:
        if any(getattr(v.aval, "dtype", None) in HALVES for v in (*equation.invars, *equation.outvars)):
            return True
        if any(_has_halves(inner) for inner in jaxprs_in_params(equation.params)):
            return True
    return False


def _judged(k: int, got: np.ndarray, references: Sequence[np.ndarray], exact: np.ndarray | None = None) -> Wrong | None:
    if np.iscomplexobj(got):
        parts = ((got.real, [r.real for r in references]), (got.imag, [r.imag for r in references]))
        found = [w for g, r in parts if (w := _judged(k, g, r)) is not None]
        return found[0] if found else None
    bad = _bad_floats(got, references) if _inexact(got.dtype) else _bad_integers(got, references)
    if exact is not None:
        bad &= ~_as_exact(got, references[0], exact)
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    others = np.array([_wide(r)[at] for r in references])
    with np.errstate(all="ignore"):
        known = others[~np.isnan(others)]
        span = f"{known.min()} to {known.max()}" if known.size else "nan"
    count = f"{int(bad.sum())} of {bad.size} elements"
    what = f"output {k} {got.dtype}{list(got.shape)}: {count}, at {list(at)} {got[at]}"
    return Wrong(k, f"{what} where {references[0][at]} is right ({span} with other roundings)")


def _as_exact(got: np.ndarray, plain: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Where a result is right by the one in float64; nowhere if it is not of real numbers."""
    if exact.shape != got.shape or exact.dtype != np.float64 or not _is_real(got.dtype):
        return np.zeros(got.shape, bool)
    with np.errstate(all="ignore"):
        room = np.fmax(EXACT_ULPS * _eps(got.dtype) * np.abs(exact), NO_WORSE * np.abs(_wide(plain) - exact))
        near = np.abs(_wide(got) - exact) <= room
        # XLA's own is one that its type made of a number: 0 times what has overflowed.
        return near | (np.isfinite(exact) & ~np.isfinite(_wide(plain)) & ~np.isfinite(_wide(got)))


def _bad_integers(got: np.ndarray, references: Sequence[np.ndarray]) -> np.ndarray:
    first = references[0]
    agreed = np.ones(got.shape, bool)
    for r in references[1:]:
        agreed &= r == first
    return agreed & (got != first)


def _bad_floats(got: np.ndarray, references: Sequence[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        g = _wide(got)
        runs = np.stack([_wide(r) for r in references])
        low, high = runs.min(0), runs.max(0)  # NaN where one of them is
        nan, all_nan = np.isnan(runs).any(0), np.isnan(runs).all(0)
        size = np.maximum(np.abs(low), np.abs(high))
        smallest = float(ml_dtypes.finfo(got.dtype).smallest_normal) if _inexact(got.dtype) else 0.0
        # A running product that XLA flushes to 0 on its way may come back to normal numbers where nothing is flushed.
        flushed = np.where((size == 0) & (smallest < 1e-30), FLUSHED, 1.0) * smallest
        room = SPREADS * (high - low) + ULPS * _eps(got.dtype) * size + flushed
        finite = np.isfinite(low) & np.isfinite(high)
        # Of nothing but roundings, a 0 may come out, and what has no value there.
        noise = np.isnan(g) & (low < 0) & (high > 0) & (high - low > size)
        bad_finite = finite & ~((g >= low - room) & (g <= high + room)) & ~noise
        # Close to the largest number, rounding decides between it and infinity.
        largest = float(ml_dtypes.finfo(got.dtype).max)
        bad_finite &= ~(np.isinf(g) & (size > largest / 2) & (np.sign(g) == np.sign(high)))
        bad_infinite = ~nan & (low == high) & np.isinf(low) & (g != low)
        return bad_finite | bad_infinite | (all_nan & ~np.isnan(g))


def _inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def _is_real(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def _wide(x: np.ndarray) -> np.ndarray:
    if np.iscomplexobj(x):
        return x
    return x.astype(np.float64) if _inexact(x.dtype) else x


def _eps(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)
