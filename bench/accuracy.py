"""How far results are from a float64 reference, and whether stitching keeps ``jax.jit``'s accuracy.

The reference is the same function, compiled by XLA for the CPU, on the same argument values widened to float64. The
error of an output leaf is ``max |value - reference| / max |reference|``. A stitched leaf agrees if its error is at most
twice that of ``jax.jit`` plus one unit in the last place of the leaf's dtype at the reference's magnitude; leaves that
hold no floating-point numbers must be equal, and non-finite values must stand in the same places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, slots=True)
class LeafAgreement:
    """Errors of one output leaf, relative to the reference's largest magnitude (absolute where that is 0)."""

    path: str
    dtype: str
    stitched_error: float
    plain_error: float
    ulp: float
    same_places: bool
    """Non-finite values, or all values of a leaf without floating-point numbers, are where the plain result has them.
    """

    @property
    def allowed(self) -> float:
        """The largest stitched error that still agrees."""
        return 2 * self.plain_error + self.ulp

    @property
    def agrees(self) -> bool:
        return self.same_places and self.stitched_error <= self.allowed

    def __str__(self) -> str:
        verdict = "agrees" if self.agrees else "DISAGREES"
        places = "" if self.same_places else "; non-finite or exact values differ"
        return (
            f"{self.path or 'result'} {self.dtype}: {verdict}, error {self.stitched_error:.3g} stitched, "
            f"{self.plain_error:.3g} jax.jit, {self.allowed:.3g} allowed{places}"
        )


def is_floating(x: Any) -> bool:
    """True for real floating-point arrays; False for integers, booleans and PRNG keys."""
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


def reference(fun: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """``fun`` on ``args`` with every floating-point leaf widened to float64, on the CPU; leaves are NumPy arrays."""
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        wide = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64) if is_floating(x) else x, args)
        result = jax.jit(fun)(*wide)
        floats = [leaf.dtype for leaf in jax.tree.leaves(result) if is_floating(leaf)]
        if any(dtype != np.float64 for dtype in floats):
            raise ValueError(
                f"a cast inside {getattr(fun, '__name__', fun)} defeats the float64 reference: it returns {floats}"
            )
        return jax.tree.map(np.asarray, result)


def agreement(stitched: Any, plain: Any, exact: Any) -> tuple[LeafAgreement, ...]:
    """One verdict for each leaf of three results of the same structure; ``exact`` is ``reference``'s.

    Raises ``ValueError`` if structure, shape or dtype of the stitched result differ from the plain result's.
    """
    found: Any = jax.tree.structure(stitched)
    expected: Any = jax.tree.structure(plain)
    if found != expected:
        raise ValueError(f"structures differ: {found} and {expected}")
    rows = zip(
        jax.tree_util.tree_leaves_with_path(stitched), jax.tree.leaves(plain), jax.tree.leaves(exact), strict=True
    )
    return tuple(_leaf(jax.tree_util.keystr(path), s, p, e) for (path, s), p, e in rows)


def _leaf(path: str, stitched: Any, plain: Any, exact: np.ndarray) -> LeafAgreement:
    if stitched.shape != plain.shape or stitched.dtype != plain.dtype:
        raise ValueError(f"{path}: {stitched.dtype}{stitched.shape} in place of {plain.dtype}{plain.shape}")
    dtype = str(plain.dtype)
    if not is_floating(plain):
        return LeafAgreement(path, dtype, 0.0, 0.0, 0.0, bool(np.array_equal(np.asarray(stitched), np.asarray(plain))))
    s, p = (np.asarray(x).astype(np.float64) for x in (stitched, plain))
    finite = np.isfinite(s) & np.isfinite(p) & np.isfinite(exact)
    same = bool(
        np.array_equal(s[~np.isfinite(p)], p[~np.isfinite(p)], equal_nan=True)
        and np.all(np.isfinite(s) == np.isfinite(p))
    )
    magnitude = float(np.max(np.abs(exact), where=finite, initial=0.0))
    unit = magnitude or 1.0
    errors = [float(np.max(np.abs(x - exact), where=finite, initial=0.0)) / unit for x in (s, p)]
    return LeafAgreement(path, dtype, errors[0], errors[1], _ulp(plain.dtype, magnitude) / unit, same)


def _ulp(dtype: Any, magnitude: float) -> float:
    """The distance between neighbouring values of ``dtype`` at ``magnitude``."""
    info = jnp.finfo(dtype)
    exponent = np.floor(np.log2(magnitude)) if magnitude >= float(info.tiny) else np.log2(float(info.tiny))
    return float(info.eps) * 2.0 ** float(exponent)
