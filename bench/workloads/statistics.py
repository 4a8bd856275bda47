"""Batch statistics, whole-array statistics and running sums: the rest of the design's table."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from bench.workloads.base import Function, Maker, Size, Workload, gradient, normal, widened


def batch_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Training: the statistics of ``x`` [batch, height, width, channels] over all but its channels."""
    wide = widened(x)
    centred = wide - wide.mean((0, 1, 2))
    variance = jnp.square(centred).mean((0, 1, 2))
    return (centred * jax.lax.rsqrt(variance + 1e-5) * scale + bias).astype(x.dtype)


def standardise(x: jax.Array) -> jax.Array:
    """The whole array with mean 0 and variance 1."""
    wide = widened(x)
    return ((wide - wide.mean()) / (wide.std() + 1e-5)).astype(x.dtype)


def logsumexp(x: jax.Array) -> jax.Array:
    """Over the last axis."""
    return jax.nn.logsumexp(x, axis=-1)


def cumsum(x: jax.Array) -> jax.Array:
    """Along the last axis."""
    return jnp.cumsum(x, axis=-1)


def _normed(function: Function, cotangent: bool = False) -> Maker:
    def make(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
        channels = size[-1:]
        args = normal(0, size, dtype, 2.0, 0.5), normal(1, channels, dtype, 0.1, 1.0), normal(2, channels, dtype, 0.1)
        return function, args + ((normal(9, size, dtype),) if cotangent else ())

    return make


def _one_array(function: Function) -> Maker:
    def make(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
        return function, (normal(0, size, dtype, 1.5, 0.3),)

    return make


IMAGES: tuple[Size, ...] = ((4, 16, 16, 64), (3, 7, 5, 60))
ROWS: tuple[Size, ...] = ((256, 1024), (129, 77))

WORKLOADS = (
    Workload("batch_norm", "statistics", _normed(batch_norm), (32, 56, 56, 64), IMAGES, 6, 2),
    Workload(
        "batch_norm_gradient", "statistics", _normed(gradient(batch_norm, 3), True), (32, 56, 56, 64), IMAGES, 14, 2
    ),
    Workload("standardise", "statistics", _one_array(standardise), (8192, 1024), ROWS, 5, 2),
    Workload("logsumexp", "statistics", _one_array(logsumexp), (8192, 1024), ROWS, 3, 1),
    Workload("cumsum", "statistics", _one_array(cumsum), (8192, 1024), ROWS, 4, 1),
)
