"""Layers that the Transformers among the workloads share."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from jax_stitch.demo.block import Dropout


class Attention(nn.Module):
    """Multi-head attention of ``x`` [batch, queries, features] to ``memory`` [batch, keys, features]."""

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, memory: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """``mask`` is true where a query may look, of a shape that broadcasts to [batch, heads, queries, keys]."""
        return nn.MultiHeadDotProductAttention(num_heads=self.heads)(x, memory, memory, mask=mask)


class FeedForward(nn.Module):
    """The position-wise network, four times as wide inside."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(x)))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with dropout, a residual connection and a LayerNorm after it.

    Without dropout (``rate`` 0) for inference.
    """

    heads: int
    rate: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        x = nn.LayerNorm()(x + dropped(Attention(self.heads)(x, x, mask), self.rate))
        return nn.LayerNorm()(x + dropped(FeedForward()(x), self.rate))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output, and feed-forward."""

    heads: int
    rate: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, memory: jax.Array, visible: jax.Array) -> jax.Array:
        """``visible`` is the mask of ``memory``."""
        past = nn.make_causal_mask(x[..., 0])
        x = nn.LayerNorm()(x + dropped(Attention(self.heads)(x, x, past), self.rate))
        x = nn.LayerNorm()(x + dropped(Attention(self.heads)(x, memory, visible), self.rate))
        return nn.LayerNorm()(x + dropped(FeedForward()(x), self.rate))


def dropped(x: jax.Array, rate: float) -> jax.Array:
    """``x`` after dropout, inside a module."""
    return Dropout(rate)(x) if rate else x


def positions(length: int, features: int) -> jax.Array:
    """Sinusoidal position encodings [length, features] in float32; ``features`` is even."""
    rates = 10000.0 ** (-jnp.arange(features // 2, dtype=jnp.float32) / (features // 2))
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * rates
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def keep_mask(lengths: jax.Array, steps: int) -> jax.Array:
    """True [batch, 1, 1, steps] at the positions before each sequence's end."""
    return (jnp.arange(steps)[None, :] < lengths[:, None])[:, None, None, :]
