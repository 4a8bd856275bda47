"""LayerNorm, RMSNorm with rotary embedding and GroupNorm, with their gradients.

Residual, dropout and LayerNorm in one.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from bench.workloads.base import Function, Maker, Size, Workload, gradient, normal, widened, with_gradient

EPSILON = 1e-5
KEEP = np.float32(0.9)  # float32 also under x64, so that a key gives the same mask there


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Over the last axis."""
    wide = widened(x)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + EPSILON) * scale + bias).astype(x.dtype)


def rms_norm_rope(x: jax.Array, scale: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """RMSNorm of ``x`` [tokens, heads * width], then each head's two halves rotated.

    ``cos`` and ``sin`` are [tokens, width / 2].
    """
    wide = widened(x)
    normed = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + EPSILON) * scale
    heads = normed.reshape(x.shape[0], -1, 2 * cos.shape[-1])
    first, second = jnp.split(heads, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.reshape(x.shape).astype(x.dtype)


def group_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """``x`` is [batch, height, width, channels].

    The number of groups is the largest power of two up to 32 that divides the channels.
    """
    groups = math.gcd(x.shape[-1], 32)
    wide = widened(x).reshape(*x.shape[:-1], groups, -1)
    centred = wide - wide.mean((1, 2, 4), keepdims=True)
    variance = jnp.square(centred).mean((1, 2, 4), keepdims=True)
    normed = (centred * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape)
    return (normed * scale + bias).astype(x.dtype)


def residual_dropout_layer_norm(
    key: jax.Array, residual: jax.Array, x: jax.Array, scale: jax.Array, bias: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The end of a Transformer sub-block; returns the new residual stream and its LayerNorm."""
    kept = jax.random.bernoulli(key, KEEP, x.shape)
    stream = residual + jnp.where(kept, x / KEEP.astype(x.dtype), 0)
    return stream, layer_norm(stream, scale, bias)


def _layer_norm_args(size: Size, dtype: DTypeLike) -> tuple[Any, ...]:
    features = size[-1:]
    return normal(0, size, dtype, 2.0, 0.5), normal(1, features, dtype, 0.1, 1.0), normal(2, features, dtype, 0.1)


def _rope_args(size: Size, dtype: DTypeLike) -> tuple[Any, ...]:
    tokens, features = size
    heads = next(h for h in (16, 8, 4, 3, 2, 1) if features % (2 * h) == 0)
    half = features // heads // 2
    angles = jnp.arange(tokens)[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    scale = normal(1, (features,), dtype, 0.1, 1.0)
    return normal(0, size, dtype, 2.0), scale, jnp.cos(angles).astype(dtype), jnp.sin(angles).astype(dtype)


def _dropout_args(size: Size, dtype: DTypeLike) -> tuple[Any, ...]:
    return jax.random.key(7), normal(3, size, dtype), *_layer_norm_args(size, dtype)


def _maker(function: Function, args: Any, cotangent: bool = False) -> Maker:
    """The cotangent has the shape of the output, which is ``size`` for all of these."""

    def make(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
        return function, args(size, dtype) + ((normal(9, size, dtype),) if cotangent else ())

    return make


ROWS: tuple[Size, ...] = ((256, 1024), (1023, 1000), (129, 77))
EVEN_ROWS: tuple[Size, ...] = ((256, 1024), (1023, 1000), (129, 78))
IMAGES: tuple[Size, ...] = ((4, 16, 16, 64), (3, 7, 5, 60))
_workload = functools.partial(Workload, family="normalisation")

WORKLOADS = (
    _workload(
        "layer_norm",
        make=_maker(layer_norm, _layer_norm_args),
        size=(8192, 1024),
        test_sizes=ROWS,
        xla_launches=1,
        target=1,
    ),
    _workload(
        "layer_norm_gradient",
        make=_maker(gradient(layer_norm, 3), _layer_norm_args, cotangent=True),
        size=(8192, 1024),
        test_sizes=ROWS,
        xla_launches=6,
        target=2,
    ),
    _workload(
        "layer_norm_and_gradient",
        make=_maker(with_gradient(layer_norm, 3), _layer_norm_args, cotangent=True),
        size=(8192, 1024),
        test_sizes=ROWS,
        xla_launches=7,
        target=2,
    ),
    _workload(
        "rms_norm_rope",
        make=_maker(rms_norm_rope, _rope_args),
        size=(8192, 1024),
        test_sizes=EVEN_ROWS,
        xla_launches=2,
        target=1,
    ),
    _workload(
        "rms_norm_rope_and_gradient",
        make=_maker(with_gradient(rms_norm_rope, 2), _rope_args, cotangent=True),
        size=(8192, 1024),
        test_sizes=EVEN_ROWS,
        xla_launches=7,
    ),
    _workload(
        "group_norm",
        make=_maker(group_norm, _layer_norm_args),
        size=(32, 56, 56, 64),
        test_sizes=IMAGES,
        xla_launches=6,
    ),
    _workload(
        "group_norm_and_gradient",
        make=_maker(with_gradient(group_norm, 3), _layer_norm_args, cotangent=True),
        size=(32, 56, 56, 64),
        test_sizes=IMAGES,
        xla_launches=14,
    ),
    _workload(
        "residual_dropout_layer_norm",
        make=_maker(residual_dropout_layer_norm, _dropout_args),
        size=(8192, 1024),
        test_sizes=ROWS,
        xla_launches=4,
        target=1,
    ),
)
