"""Transformer training: encoder and decoder, smoothed labels, Adam with gradients clipped by their global norm."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from bench.workloads.attention import DecoderLayer, EncoderLayer, keep_mask, positions
from bench.workloads.base import Function, Size, Workload, filled, integers
from bench.workloads.training import mid_training, training_step
from jax_stitch.demo.adam import adam_epsilon


class Transformer(nn.Module):
    """Logits [batch, length, vocabulary] of the target's next tokens."""

    vocabulary: int
    features: int
    layers: int
    heads: int
    rate: float = 0.1

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array, lengths: jax.Array) -> jax.Array:
        """``source`` and ``target`` are [batch, length] of tokens, ``lengths`` [batch] of the sources."""
        embed = nn.Embed(self.vocabulary, self.features)
        visible = keep_mask(lengths, source.shape[1])

        def embedded(tokens: jax.Array) -> jax.Array:
            x = embed(tokens)
            return x * self.features**0.5 + positions(tokens.shape[1], self.features).astype(x.dtype)

        memory, x = embedded(source), embedded(target)
        for _ in range(self.layers):
            memory = EncoderLayer(self.heads, self.rate)(memory, visible)
        for _ in range(self.layers):
            x = DecoderLayer(self.heads, self.rate)(x, memory, visible)
        return embed.attend(x)


def smoothed(logits: jax.Array, labels: jax.Array, smoothing: float = 0.1) -> jax.Array:
    """Cross entropy with part of the weight spread over all classes."""
    log_probabilities = jax.nn.log_softmax(logits)
    true = jnp.take_along_axis(log_probabilities, labels[..., None], -1)[..., 0]
    return -((1 - smoothing) * true + smoothing * log_probabilities.mean(-1)).mean()


def transformer_training(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    """One step; ``size`` is (batch, length, features, layers, heads, vocabulary)."""
    batch, length, features, layers, heads, vocabulary = size
    model = Transformer(vocabulary, features, layers, heads)
    source, target, labels = (integers(i, (batch, length), vocabulary) for i in range(3))
    lengths, key = 1 + integers(3, (batch,), length), jax.random.key(7)
    params = filled(jax.eval_shape(model.init, {"params": key, "dropout": key}, source, target, lengths), dtype)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-4, b2=0.98, eps=adam_epsilon(dtype)))

    def loss(params: Any, source: Any, target: Any, lengths: Any, labels: Any, key: Any) -> jax.Array:
        return smoothed(model.apply(params, source, target, lengths, rngs={"dropout": key}), labels)

    step = training_step(loss, optimizer, "transformer_training")
    return step, (params, mid_training(optimizer, params), source, target, lengths, labels, key)


WORKLOADS = (
    Workload(
        "transformer_training",
        "transformer",
        transformer_training,
        (8, 64, 256, 2, 4, 4000),
        ((2, 16, 32, 1, 2, 64), (3, 7, 20, 1, 2, 29)),
        paper_size=(64, 64, 512, 6, 8, 32000),  # base, a batch of 4,096 tokens
    ),
)
