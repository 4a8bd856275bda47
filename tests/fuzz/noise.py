"""Numbers that look random, for each element of an array: what ``perturb`` moves roundings by."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def bits_of(x: Any) -> tuple[Any, Any]:
    """A float's bits, and that of its sign."""
    kind = jnp.uint64 if x.dtype.itemsize == 8 else jnp.uint32 if x.dtype.itemsize == 4 else jnp.uint16
    return lax.bitcast_convert_type(x, kind), jnp.asarray(1, kind) << jnp.asarray(8 * x.dtype.itemsize - 1, kind)


def mixed(x: Any, salt: int = 0) -> Any:
    """A hash of 32 bits."""
    x = (x ^ jnp.uint32(salt * 0x9E3779B1 & 0xFFFFFFFF)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def following(seed: Any, salt: int) -> Any:
    """The seed of a step or of a branch: another one, but 0, which moves nothing, stays."""
    return jnp.where(seed == 0, seed, mixed(seed, salt))


# Functions of their own, so that JAX traces and lowers each once for a shape and a type.


@partial(jax.jit, static_argnames="shape")
def hashed(seed: Any, count: Any, *, shape: tuple[int, ...]) -> Any:
    n = math.prod(shape)
    return mixed(lax.iota(jnp.uint32, n).reshape(shape) + mixed(seed ^ (count * np.uint32(0x9E3779B1))), 0x5BD1)


@partial(jax.jit, static_argnames=("amount", "short"))
def moved(x: Any, seed: Any, count: Any, *, amount: int, short: bool) -> Any:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        size = jnp.abs(x)
        real, imag = (_noise(size, seed, count + np.uint32(k << 24), amount + 2) * size for k in (1, 2))
        return lax.complex(jnp.real(x) + real, jnp.imag(x) + imag).astype(x.dtype)
    changed = (x + _noise(x, seed, count, amount) * x).astype(x.dtype)
    changed = jnp.where(jnp.isfinite(x), changed, x)
    if short:
        bits = jnp.finfo(x.dtype).nmant
        is_short = (x * 16 == jnp.round(x * 16)) & (jnp.abs(x) < 2.0 ** (bits - 4))
        changed = jnp.where(is_short, x, changed)
    tiny = jnp.abs(x) < jnp.finfo(x.dtype).smallest_normal
    flushed = jnp.where(tiny & (seed % 2 == 1), jnp.zeros_like(x), changed)
    return jnp.where(seed == 0, x, flushed)


def _noise(x: Any, seed: Any, count: Any, amount: int) -> Any:
    steps = (hashed(seed, count, shape=x.shape) % jnp.uint32(2 * amount + 1)).astype(jnp.int32) - amount
    return steps.astype(x.dtype) * jnp.asarray(jnp.finfo(x.dtype).eps, x.dtype)
