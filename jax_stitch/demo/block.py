"""A Flax pre-norm Transformer block, and a training step of it with Optax's AdamW.

Plain JAX: nothing here knows of stitching.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike

from jax_stitch.demo.adam import adam_epsilon


class Dropout(nn.Module):
    """As ``nn.Dropout``, with the mask drawn in float32 at every precision: a key gives the same mask under x64 too."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        keep = 1.0 - self.rate
        mask = jax.random.bernoulli(self.make_rng("dropout"), np.float32(keep), x.shape)
        return jnp.where(mask, x / keep, 0)


class Block(nn.Module):
    """Attention and GELU MLP, each behind a LayerNorm, a dropout and a residual connection."""

    heads: int
    dropout: float = 0.1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply the block to ``x``: [batch, length, features]."""
        features, dtype = x.shape[-1], x.dtype
        y = nn.LayerNorm(param_dtype=dtype)(x)
        y = nn.MultiHeadDotProductAttention(num_heads=self.heads, param_dtype=dtype, use_bias=False)(y, y)
        x = x + Dropout(self.dropout)(y)
        y = nn.LayerNorm(param_dtype=dtype)(x)
        y = nn.gelu(nn.Dense(4 * features, param_dtype=dtype)(y))
        y = nn.Dense(features, param_dtype=dtype)(y)
        return x + Dropout(self.dropout)(y)


def make_training_step(size: tuple[int, ...], dtype: DTypeLike) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the step (squared error, gradient, AdamW update) and its arguments, for ``size`` (batch, length,
    features).
    """
    block = Block(heads=4)
    optimizer = optax.adamw(1e-3, eps=adam_epsilon(dtype))

    def training_step(
        params: Any, state: Any, x: jax.Array, y: jax.Array, key: jax.Array
    ) -> tuple[Any, Any, jax.Array]:
        def loss_of(params: Any) -> jax.Array:
            predicted = block.apply(params, x, rngs={"dropout": key})
            return jnp.square(predicted - y).mean()

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    seed, x_key, y_key, key = jax.random.split(jax.random.key(0), 4)
    x, y = (jax.random.normal(k, size, jnp.float32).astype(dtype) for k in (x_key, y_key))
    params = jax.jit(block.init)({"params": seed, "dropout": key}, x)

    @jax.jit
    def later(params: Any) -> Any:
        """Return the state of mid-training, not the first step: Adam's first update is g / |g|, which turns rounding
        errors of small gradients into errors of one.
        """
        earlier = jax.tree.map(lambda p: 0.01 * jax.random.normal(seed, p.shape, p.dtype), params)
        return optimizer.update(earlier, optimizer.init(params), params)[1]

    return training_step, (params, later(params), x, y, key)
