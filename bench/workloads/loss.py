"""Cross entropy with integer labels, and its gradient."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from bench.workloads.base import Function, Maker, Size, Workload, normal

ROWS: tuple[Size, ...] = ((256, 1024), (1023, 1000), (129, 77))


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over the batch; ``logits`` is [batch, classes], ``labels`` [batch] of int32."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


cross_entropy_gradient = functools.wraps(cross_entropy)(jax.grad(cross_entropy))
cross_entropy_gradient.__name__ = "cross_entropy_gradient"


def _maker(function: Function) -> Maker:
    def make(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
        batch, classes = size
        labels = jax.random.randint(jax.random.key(1), (batch,), 0, classes, jnp.int32)
        return function, (normal(0, size, dtype, 3.0), labels)

    return make


WORKLOADS = (
    Workload("cross_entropy", "loss", _maker(cross_entropy), (8192, 1024), ROWS, xla_launches=4, target=1),
    Workload(
        "cross_entropy_gradient", "loss", _maker(cross_entropy_gradient), (8192, 1024), ROWS, xla_launches=3, target=1
    ),
)
