"""Arguments that show what a kernel gets wrong: unlike numbers, now and then a special one, or many equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]

_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, np.nan, 1e30, -1e-30)

_RARE = 32
"""One number among so many is a special one; of short arrays two."""


class Kind(Enum):
    """What arguments are like."""

    USUAL = "unlike each other"
    SPECIAL = "now and then infinite, no number, a zero of either sign, an integer far outside"
    EQUAL = "many of them equal: zeros, which stay so when they are moved"


def arguments(types: Sequence[jax.ShapeDtypeStruct], seed: int, kind: Kind, scale: float = 1.0) -> list[Array]:
    """Return random values of these types, floating ones about as large as ``scale``. Integers are positions along the
    longest dimension, since most are indices.
    """
    rng = np.random.default_rng(seed)
    longest = max((d for t in types for d in t.shape), default=2)
    return [_values(t, longest, rng, kind, scale, seed) for t in types]


def _values(
    wanted: jax.ShapeDtypeStruct, longest: int, rng: np.random.Generator, kind: Kind, scale: float, seed: int
) -> Array:
    dtype, count = np.dtype(wanted.dtype), prod(wanted.shape)
    if dtype == np.bool_:
        return np.asarray(rng.random(count) < 0.5).reshape(wanted.shape)
    share = max(1 / _RARE, min(0.5, 2 / max(count, 1)))
    rare = rng.random(count) < share if kind is Kind.SPECIAL else np.zeros(count, bool)
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        values: Array = rng.integers(0, min(max(longest, 2), int(info.max)), count).astype(dtype)
        if kind is Kind.EQUAL:  # Of one alone, each of the first three in turn: they are the edge of what is indexed.
            values = ((rng.permutation(count) + seed) % min(3, int(info.max))).astype(dtype)
        far = np.asarray([int(info.min), int(info.max), 0, int(info.max) // 3], dtype)
        return np.where(rare, rng.choice(far, count), values).reshape(wanted.shape)
    values = rng.standard_normal(count)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        values = values + 1j * rng.standard_normal(count)
    if kind is Kind.EQUAL:
        values = np.where(rng.random(count) < 0.4, 0.0, values)
    values *= scale
    values = np.where(rare, rng.choice(np.asarray(_SPECIAL), count), values)
    with np.errstate(over="ignore"):
        return values.astype(dtype).reshape(wanted.shape)


def moved(given: Sequence[Array], step: float, seed: int) -> list[Array]:
    """Return the same with each floating value moved by up to ``step`` of itself: what rounding otherwise may do."""
    rng = np.random.default_rng(seed)
    return [_moved(a, step, rng) for a in given]


def _moved(array: Array, step: float, rng: np.random.Generator) -> Array:
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    factor = 1.0 + step * rng.uniform(-1.0, 1.0, array.shape)
    wide = array.astype(np.complex128 if jnp.issubdtype(array.dtype, jnp.complexfloating) else np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return (wide * factor).astype(array.dtype)
