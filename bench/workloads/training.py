"""Training steps: a loss, its gradient, and an optimizer's update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax

from bench.workloads.base import Function, normal


def training_step(
    loss: Callable[..., jax.Array], optimizer: optax.GradientTransformation, name: str | None = None
) -> Function:
    """``step(params, state, *batch) -> (params, state, loss)`` for ``loss(params, *batch)``."""

    def step(params: Any, state: Any, *batch: Any) -> tuple[Any, Any, jax.Array]:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    step.__name__ = step.__qualname__ = name or f"{loss.__name__}_training"
    return step


def mid_training(optimizer: optax.GradientTransformation, params: Any) -> Any:
    """The optimizer's state some way into training.

    Not its first: Adam's first update is g / |g|, which turns rounding errors of small gradients into errors of one.
    """
    leaves, structure = jax.tree.flatten(params)
    earlier = [normal(5000 + i, leaf.shape, leaf.dtype, 0.01) for i, leaf in enumerate(leaves)]
    return optimizer.update(jax.tree.unflatten(structure, earlier), optimizer.init(params), params)[1]


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over all positions; ``logits`` is [..., classes], ``labels`` [...] of int32."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
