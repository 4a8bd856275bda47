"""Arguments to time programs on: of the right types, in several sets that do not fit the cache together."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import jax
import numpy as np

from jax_stitch.devices import Device

MOST_SETS = 8
"""A program of short calls holds the code of a call for each set."""

_SMALL = 1 / 16
"""The share of the last cache below which all sets would stay in it, near the core: one does as well."""

_MEMORY = 1 / 8
"""The share of the device's memory that all sets may take."""

_BLOCK = 1 << 18
"""Random values that are made; arrays repeat them."""


class TooLarge(Exception):
    """The arguments alone would fill the memory."""


def argument_sets(
    types: Sequence[jax.ShapeDtypeStruct], device: Device, in_cache: bool = False
) -> list[tuple[jax.Array, ...]]:
    """Set of arguments on ``device``, together twice the size of its last cache where ``MOST_SETS`` of them are.

    ``in_cache``: one set, for what runs on the same arrays again and again; so have small arguments. Floating values
    are near 1, so that no program runs into NaNs or denormal numbers by itself; integers are positions along the
    longest dimension that there is, since most are indices. Raises ``TooLarge``.
    """
    size = sum(prod(t.shape) * t.dtype.itemsize for t in types)
    room = int(device.memory_bytes * _MEMORY)
    if size > room:
        raise TooLarge
    is_small = MOST_SETS * size <= _SMALL * device.l2_bytes
    wanted = 1 if in_cache or is_small else ceil(2 * device.l2_bytes / size)
    count = max(1, min(wanted, MOST_SETS, room // max(size, 1)))
    longest = max((d for t in types for d in t.shape), default=2)
    target = jax.local_devices(backend=device.target.platform)[0]
    rng = np.random.default_rng(0)
    return [tuple(jax.device_put(_values(t, longest, rng), target) for t in types) for _ in range(count)]


def _values(wanted: jax.ShapeDtypeStruct, longest: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    dtype = np.dtype(wanted.dtype)
    count = prod(wanted.shape)
    block = min(count, _BLOCK)
    if dtype == np.bool_:
        values: Any = rng.random(block) < 0.5
    elif jax.numpy.issubdtype(dtype, jax.numpy.integer):
        values = rng.integers(0, min(max(longest, 2), int(jax.numpy.iinfo(dtype).max)), block)
    else:
        values = rng.uniform(0.5, 1.5, block)
    return np.resize(values.astype(dtype), count).reshape(wanted.shape)
