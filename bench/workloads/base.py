"""What a workload is, and what the workloads share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

Size = tuple[int, ...]
Function = Callable[..., Any]
Maker = Callable[[Size, DTypeLike], tuple[Function, tuple[Any, ...]]]
TABLES = frozenset({"embedding", "items", "kinds"})
"""Parameters that rows are taken from."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A plain JAX function at several sizes.

    ``make(size, dtype)`` gives the function and its arguments. The function takes any floating dtype, so that the same
    text run on float64 arguments is its own reference. ``size`` is what benchmarks use on a CPU, ``paper_size`` what
    the papers' GPUs ran, where that is more. ``test_sizes`` hold a size of powers of two and some that divide nothing.
    """

    name: str
    family: str
    make: Maker
    size: Size
    test_sizes: tuple[Size, ...]
    xla_launches: int | None = None
    """Kernels that XLA (of jax 0.10) launches per call at ``size``, in f32, on an H200, where the design says so."""
    target: int | None = None
    """What the design aims at; None where it names no target."""
    paper_size: Size | None = None
    checked_size: Size | None = None
    """Where results are compared, for a program that lets rounding errors grow with its steps; by default ``size``."""

    @property
    def gpu_size(self) -> Size:
        """What GPUs, attached or described, are given."""
        return self.paper_size or self.size

    def function(self) -> Any:
        """The function at ``size``, in float32; its ``args()`` makes the arguments."""
        plain, _ = self.abstract(self.size, jnp.float32)

        @functools.wraps(plain)
        def run(*args: Any) -> Any:
            return plain(*args)

        run.__name__ = run.__qualname__ = self.name
        named: Any = run
        named.args = lambda: self.make(self.size, jnp.float32)[1]
        return named

    def abstract(self, size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
        """As ``make``, but with ``jax.ShapeDtypeStruct`` for arrays: nothing is allocated."""
        made: list[Function] = []

        def arguments() -> tuple[Any, ...]:
            fun, args = self.make(size, dtype)
            made.append(fun)
            return args

        shapes = jax.eval_shape(arguments)
        return made[0], shapes


def normal(seed: int, shape: Size, dtype: DTypeLike, scale: float = 1.0, mean: float = 0.0) -> jax.Array:
    """Normally distributed values, the same for a seed at every dtype up to rounding."""
    values = jax.random.normal(jax.random.key(seed), shape, jnp.float32)
    return (values * scale + mean).astype(dtype)


def integers(seed: int, shape: Size, end: int) -> jax.Array:
    """Evenly distributed int32 from 0 to ``end - 1``: labels, tokens, items."""
    return jax.random.randint(jax.random.key(seed), shape, 0, end, jnp.int32)


def filled(shapes: Any, dtype: DTypeLike, seed: int = 0) -> Any:
    """Values for a pytree of parameters' shapes, as they are amid training.

    Weights shrink with their fan-in; scales and variances are near 1, biases and means near 0, and none is at it.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(shapes)
    values = []
    for i, (path, leaf) in enumerate(leaves):
        name = str(getattr(path[-1], "key", path[-1]))
        if len(leaf.shape) > 1:
            fan_in = leaf.shape[-1] if name in TABLES else math.prod(leaf.shape[:-1])
            scale, mean = fan_in**-0.5, 0.0
        else:
            scale, mean = 0.05, 1.0 if name in ("scale", "var") else 0.0
        values.append(normal(seed + i, leaf.shape, dtype, scale, mean))
    return jax.tree_util.tree_unflatten(structure, values)


def widened(x: jax.Array) -> jax.Array:
    """At least float32, as models compute their statistics; float64 stays float64."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def gradient(f: Function, n: int) -> Function:
    """``g(*args, cotangent)``: the cotangents of ``f``'s first ``n`` arguments."""

    @functools.wraps(f)
    def pullback(*args: Any) -> Any:
        *args_, cotangent = args
        return jax.vjp(lambda *first: f(*first, *args_[n:]), *args_[:n])[1](cotangent)

    pullback.__name__ += "_gradient"
    return pullback


def with_gradient(f: Function, n: int) -> Function:
    """``g(*args, cotangent)``: ``f``'s value and the cotangents of its first ``n`` arguments."""

    @functools.wraps(f)
    def both(*args: Any) -> Any:
        *args_, cotangent = args
        value, pullback = jax.vjp(lambda *first: f(*first, *args_[n:]), *args_[:n])
        return value, pullback(cotangent)

    both.__name__ += "_and_gradient"
    return both
