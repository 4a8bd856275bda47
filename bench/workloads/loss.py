"""Cross entropy with integer labels and its gradient, as Optax writes it and as the textbook does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from bench.workloads.base import Function, Maker, Size, Workload, normal


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over the batch; ``logits`` is [batch, classes], ``labels`` [batch] of int32."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def negative_log_likelihood(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The same value, by way of the log-softmax of every class."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1).mean()


def _gradient(loss: Function) -> Function:
    gradient = jax.grad(loss)
    gradient.__name__ = f"{loss.__name__}_gradient"
    return gradient


def _maker(function: Function) -> Maker:
    def make(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
        batch, classes = size
        labels = jax.random.randint(jax.random.key(1), (batch,), 0, classes, jnp.int32)
        return function, (normal(0, size, dtype, 3.0), labels)

    return make


def _workload(function: Function, xla_launches: int) -> Workload:
    return Workload(
        function.__name__,
        "loss",
        _maker(function),
        size=(8192, 1024),
        test_sizes=((256, 1024), (1023, 1000), (129, 77)),
        xla_launches=xla_launches,
        target=1,
    )


WORKLOADS = (
    _workload(cross_entropy, 5),
    _workload(_gradient(cross_entropy), 6),
    _workload(negative_log_likelihood, 4),
    _workload(_gradient(negative_log_likelihood), 3),
)
