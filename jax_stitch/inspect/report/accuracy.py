"""How far results are from a float64 reference, and whether stitching keeps ``jax.jit``'s accuracy.

The reference is the same function, compiled by XLA for the CPU, on the same argument values widened to float64. A leaf
has two errors: the root mean square of ``value - reference`` over that of ``reference``, and
``max |value - reference| / max |reference|``. A stitched leaf agrees if its root mean square error is at most twice
that of ``jax.jit`` plus one unit in the last place of the leaf's dtype. That is the verdict because the largest error
of one element is chance: any other order of the same roundings moves it by factors. It still has to be of the same
order of magnitude, so that no wrong element hides among many right ones; in a leaf of only a few elements the mean is
chance too, and has as much room. Of complex numbers both parts count.

Leaves that hold no floating-point numbers must be equal, and non-finite values must stand in the same places, but for
those where the reference is finite: there a finite stitched value is measured like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class NoReference(ValueError):
    """The function cannot be evaluated in float64."""


MAGNITUDE = 10
"""How much larger than that of ``jax.jit`` the largest error of a leaf may be."""

FEW = 32
"""Elements of a leaf whose mean error is no better a witness than its largest."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one result of a leaf, relative to the reference (absolute where that is 0)."""

    mean: float
    """Root mean square of the differences over the root mean square of the reference."""
    largest: float
    """Largest difference over the largest magnitude of the reference."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Elements that have to be the same, and are not: numbers of exact types, and which values are finite."""

    count: int
    first: tuple[int, ...]
    """Index of the first one."""
    stitched: str
    plain: str
    """Its values, as text."""
    plain_count: int
    """In how many of these ``jax.jit`` itself differs from the reference: a last bit may tip a comparison."""

    def told(self, elements: int) -> str:
        """Return the agreement said in a clause."""
        at = f", first at {list(self.first)}" if self.first else ""
        own = (
            f" (jax.jit itself differs from the reference in {self.plain_count:,} of them)" if self.plain_count else ""
        )
        differ = f"{self.count:,} of {elements:,} elements that have to be the same differ{at}"
        return f"{differ}: {self.stitched} stitched, {self.plain} under jax.jit{own}"


@dataclass(frozen=True, slots=True)
class LeafAgreement:
    """Errors of one output leaf."""

    path: str
    dtype: str
    stitched: Errors
    plain: Errors
    ulp: float
    """One unit in the last place of the leaf's dtype, relative."""
    same_places: bool
    """Non-finite values, or all values of a leaf without floating-point numbers, are where the plain result has them.
    """
    elements: int
    difference: Difference | None = None
    """What differs where ``same_places`` is False."""

    @property
    def is_exact(self) -> bool:
        """Return whether its elements have to be equal, and there is no error to tell: they are no floating-point
        numbers.
        """
        return self.ulp == 0

    @property
    def is_noise(self) -> bool:
        """Return whether ``jax.jit``'s own result has no digit that is right: the true one is next to 0 beside what it
        is the difference of.
        """
        return self.plain.mean > 1

    @property
    def allowed(self) -> Errors:
        """Return the largest stitched errors that still agree."""
        largest = MAGNITUDE * (self.plain.largest + self.ulp)
        mean = 2 * self.plain.mean + self.ulp
        return Errors(mean if self.elements >= FEW else MAGNITUDE * (self.plain.mean + self.ulp), largest)

    @property
    def agrees(self) -> bool:
        allowed = self.allowed
        return self.same_places and self.stitched.mean <= allowed.mean and self.stitched.largest <= allowed.largest

    def __str__(self) -> str:
        verdict = "agrees" if self.agrees else "DISAGREES"
        shown = ", ".join(
            f"{e.mean:.3g} (largest {e.largest:.3g}) {name}"
            for e, name in ((self.stitched, "stitched"), (self.plain, "jax.jit"), (self.allowed, "allowed"))
        )
        differs = "" if self.difference is None else self.difference.told(self.elements)
        parts = [differs] if self.is_exact else [f"error {shown}", differs]
        return f"{self.path or 'result'} {self.dtype}: {verdict}" + "".join(f", {part}" for part in parts if part)


def is_floating(x: Any) -> bool:
    """Return True for arrays of floating-point numbers; False for integers, booleans, PRNG keys and what is no
    array.
    """
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def is_complex(x: Any) -> bool:
    """Return True for arrays of complex numbers."""
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.complexfloating)


def reference(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Return ``fun`` of its arguments with every floating-point array widened to float64, on the CPU; leaves are NumPy
    arrays.

    ``options`` are those that ``jax.jit`` needs for ``fun``. Raises ``NoReference`` if the function does not take
    float64, or returns a narrower floating-point array: a cast inside it then defeats the purpose.
    """
    cpu = jax.local_devices(backend="cpu")[0]

    def widened(x: Any) -> Any:
        if is_floating(x):
            return jax.device_put(np.asarray(x).astype(np.float64), cpu)
        if is_complex(x):
            return jax.device_put(np.asarray(x).astype(np.complex128), cpu)
        return jax.device_put(x, cpu) if isinstance(x, jax.Array) else x

    with jax.enable_x64(True), jax.default_device(cpu):
        wide_args, wide_kwargs = jax.tree.map(widened, (args, dict(kwargs or {})))
        name = getattr(fun, "__name__", "the function")
        try:
            result = jax.jit(fun, **(options or {}))(*wide_args, **wide_kwargs)
        except TypeError as error:  # such as a loop whose carry starts as float32 and becomes float64
            raise NoReference(f"{name} cannot be evaluated in float64: {error}") from error
        inexact = {str(leaf.dtype) for leaf in jax.tree.leaves(result) if is_floating(leaf) or is_complex(leaf)}
        narrow = inexact - {"float64", "complex128"}
        if narrow:
            raise NoReference(f"a cast inside {name} defeats float64: it returns {', '.join(sorted(narrow))}")
        return jax.tree.map(_numpy, result)


def _numpy(x: Any) -> np.ndarray:
    """Return the array's values; of PRNG keys the words they consist of."""
    keys = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if keys else x)


def agreement(stitched: Any, plain: Any, exact: Any) -> tuple[LeafAgreement, ...]:
    """Return one verdict for each leaf of three results of the same structure; ``exact`` is ``reference``'s.

    Raises ``ValueError`` if structure, shape or dtype of the stitched result differ from the plain result's.
    """
    structure: Any = jax.tree.structure(stitched)
    expected: Any = jax.tree.structure(plain)
    if structure != expected:
        raise ValueError(f"structures differ: {structure} and {expected}")
    rows = zip(
        jax.tree_util.tree_leaves_with_path(stitched), jax.tree.leaves(plain), jax.tree.leaves(exact), strict=True
    )
    return tuple(_leaf(jax.tree_util.keystr(path), s, p, e) for (path, s), p, e in rows)


def _leaf(path: str, stitched: Any, plain: Any, exact: np.ndarray) -> LeafAgreement:
    if stitched.shape != plain.shape or stitched.dtype != plain.dtype:
        raise ValueError(f"{path}: {stitched.dtype}{stitched.shape} in place of {plain.dtype}{plain.shape}")
    dtype = str(plain.dtype)
    if is_complex(plain):
        stitched, plain, exact = map(_parts, (stitched, plain, exact))
    if not is_floating(plain):
        s, p = _numpy(stitched), _numpy(plain)
        difference = _difference(s != p, s, p, _numpy(exact))
        return LeafAgreement(
            path, dtype, Errors(0.0, 0.0), Errors(0.0, 0.0), 0.0, difference is None, plain.size, difference
        )
    s, p, exact = (np.asarray(x).astype(np.float64) for x in (stitched, plain, exact))
    # Only the stitched value is right where jax.jit's has rounded to a division by zero, as Adam's in float16 does.
    better = np.isfinite(s) & np.isfinite(exact) & ~np.isfinite(p)
    finite = np.isfinite(s) & np.isfinite(p) & np.isfinite(exact)
    lost = ~np.isfinite(p) & ~better
    elsewhere = (np.isfinite(s) != np.isfinite(p)) & ~better
    others = lost & ~((s == p) | (np.isnan(s) & np.isnan(p)))
    difference = _difference(elsewhere | others, s, p, exact)
    magnitude = float(np.max(np.abs(exact[finite | better]), initial=0.0))
    unit = magnitude or 1.0
    mean = _root_mean_square(exact[finite | better] / unit) or 1.0
    stitched_errors, plain_errors = (
        Errors(_root_mean_square(d / unit) / mean, float(np.max(np.abs(d), initial=0.0)) / unit)
        for d in ((s - exact)[finite | better], (p - exact)[finite])
    )
    ulp = _ulp(plain.dtype, magnitude) / unit
    return LeafAgreement(path, dtype, stitched_errors, plain_errors, ulp, difference is None, plain.size, difference)


def _parts(x: Any) -> np.ndarray:
    """Return the real and the imaginary part of each complex number, side by side."""
    return np.stack([np.real(x), np.imag(x)], -1)


def _difference(where: np.ndarray, stitched: np.ndarray, plain: np.ndarray, exact: np.ndarray) -> Difference | None:
    """Return what a mask of two results is of; None if there is nothing in it."""
    if not where.any():
        return None
    first = tuple(int(k) for k in np.unravel_index(int(np.argmax(where)), where.shape))
    of_plain = int(np.sum((plain != exact) & where))
    return Difference(int(where.sum()), first, str(stitched[first]), str(plain[first]), of_plain)


def _root_mean_square(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x * x))) if x.size else 0.0


def _ulp(dtype: Any, magnitude: float) -> float:
    """Return the distance between neighbouring values of ``dtype`` at ``magnitude``."""
    info = jnp.finfo(dtype)
    exponent = np.floor(np.log2(magnitude)) if magnitude >= float(info.tiny) else np.log2(float(info.tiny))
    return float(info.eps) * 2.0 ** float(exponent)
