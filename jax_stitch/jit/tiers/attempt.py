"""A call that is timed, and whether it can be made once more where it has failed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import jax


def timed(call: Callable[[], Any], arguments: Any) -> tuple[Any, float]:
    """Return its results, and the seconds from when its arguments are there until they are."""
    with contextlib.suppress(Exception):  # What is wrong with an argument shows in the call.
        jax.block_until_ready(arguments)
    start = time.perf_counter()
    result = jax.block_until_ready(call())
    return result, time.perf_counter() - start


def can_repeat(jaxpr: Any, arguments: Any) -> bool:
    """Return whether nothing of a failed call shows: it has no effects, and its arguments are still there."""
    leaves = (leaf for leaf in jax.tree.leaves(arguments) if isinstance(leaf, jax.Array))
    return not jaxpr.effects and not any(leaf.is_deleted() for leaf in leaves)
