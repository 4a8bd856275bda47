"""Functions over eight host devices under ``jax.jit`` and ``stitch_jit``: results, where they lie, and messages."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jax_stitch import stitch_jit
from tests.side_by_side import KERNEL, Transform, counted, fallbacks, same


def line() -> Mesh:
    """A mesh of one axis of eight devices."""
    return jax.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))


def grid(kind: AxisType = AxisType.Auto) -> Mesh:
    """A mesh of two by four devices."""
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(kind, kind))


def put(mesh: Mesh, array: Any, *spec: Any) -> jax.Array:
    """An array split over a mesh."""
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))


def numbers(*shape: int, scale: float = 1.0) -> jax.Array:
    """Numbers that differ from place to place."""
    return jnp.asarray((np.sin(np.arange(prod(shape)) * 0.7) * scale).reshape(shape), jnp.float32)


def softmax(x: jax.Array) -> jax.Array:
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def compare(
    fun: Callable[..., Any],
    *args: Any,
    transform: Transform | None = None,
    kernels: int | None = None,
    fallback: str | None = None,
    calls: int = 2,
    **jit_options: Any,
) -> str:
    """Calls ``fun`` under both jits, transformed; returns the lowered text where the result can be lowered.

    Compared are values, types, shardings and how often the function is traced. It must be stitched without a warning,
    into at least so many ``kernels``; or, with ``fallback``, run as plain ``jax.jit`` with one warning that says that.
    """
    applied = transform or (lambda jitted: jitted)
    outcomes = []
    with fallbacks() as messages:
        for jit in (jax.jit, stitch_jit):
            run, counter = counted(fun)
            called = applied(jit(run, **jit_options))
            outcomes.append(([called(*_copies(args)) for _ in range(calls)], counter.runs, called))
    (expected, expected_runs, _), (found, runs, called) = outcomes
    for mine, plain in zip(found, expected, strict=True):
        same(mine, plain)
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(plain), strict=True):
            assert a.sharding == b.sharding, f"{a.sharding}, not {b.sharding}"
    assert runs == expected_runs
    if fallback is not None:
        assert len(messages) == 1 and fallback in messages[0], messages
        return ""
    assert not messages, messages
    if not hasattr(called, "lower"):
        return ""
    text = str(called.lower(*args).as_text())
    assert text.count(KERNEL) >= (1 if kernels is None else kernels), f"{text.count(KERNEL)} kernels"
    return text


def _copies(args: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf, args)
