"""What a workload is, and what the workloads share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

Size = tuple[int, ...]
Function = Callable[..., Any]
Maker = Callable[[Size, DTypeLike], tuple[Function, tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Workload:
    """A plain JAX function at several sizes.

    ``make(size, dtype)`` gives the function and its arguments. The function takes any floating dtype, so that the same
    text run on float64 arguments is its own reference. ``size`` is what benchmarks use; at that size, in f32, on an
    H200, XLA (of jax 0.10) launches ``xla_launches`` kernels per call, and the design aims at ``target``.
    ``test_sizes`` hold a size of powers of two and some that divide nothing.
    """

    name: str
    family: str
    make: Maker
    size: Size
    test_sizes: tuple[Size, ...]
    xla_launches: int
    target: int | None = None
    """None where the design names no target."""

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
