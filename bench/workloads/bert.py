"""BERT: masked-token training with AdamW, and inference."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from bench.workloads.attention import EncoderLayer, dropped, keep_mask
from bench.workloads.base import Function, Size, Workload, filled, integers
from bench.workloads.training import cross_entropy, mid_training, training_step
from jax_stitch.demo.adam import adam_epsilon

Made = tuple[Function, tuple[Any, ...]]


class Bert(nn.Module):
    """The encoder: [batch, length, features] of the last layer."""

    vocabulary: int
    features: int
    layers: int
    heads: int
    rate: float = 0.0

    @nn.compact
    def __call__(self, tokens: jax.Array, segments: jax.Array, lengths: jax.Array) -> jax.Array:
        """``tokens`` and ``segments`` are [batch, length], ``lengths`` [batch]."""
        length = tokens.shape[1]
        x = nn.Embed(self.vocabulary, self.features, name="words")(tokens)
        x = x + nn.Embed(2, self.features, name="segments")(segments)
        x = x + nn.Embed(length, self.features, name="positions")(jnp.arange(length))
        x = dropped(nn.LayerNorm()(x), self.rate)
        visible = keep_mask(lengths, length)
        for _ in range(self.layers):
            x = EncoderLayer(self.heads, self.rate)(x, visible)
        return x


class MaskedTokens(nn.Module):
    """Logits [batch, masked, vocabulary] of the tokens that were masked."""

    encoder: Bert

    @nn.compact
    def __call__(self, tokens: jax.Array, segments: jax.Array, lengths: jax.Array, places: jax.Array) -> jax.Array:
        """``places`` [batch, masked] says which."""
        x = self.encoder(tokens, segments, lengths)
        x = jnp.take_along_axis(x, places[..., None], axis=1)
        x = nn.LayerNorm()(nn.gelu(nn.Dense(x.shape[-1])(x)))
        return nn.Dense(self.encoder.vocabulary)(x)


def _inputs(size: Size) -> tuple[jax.Array, jax.Array, jax.Array]:
    batch, length, _, _, _, vocabulary = size
    return integers(0, (batch, length), vocabulary), integers(1, (batch, length), 2), 1 + integers(2, (batch,), length)


def bert_training(size: Size, dtype: DTypeLike) -> Made:
    """One step; ``size`` is (batch, length, features, layers, heads, vocabulary)."""
    batch, length, features, layers, heads, vocabulary = size
    model, key = MaskedTokens(Bert(vocabulary, features, layers, heads, rate=0.1)), jax.random.key(7)
    masked = max(1, length * 3 // 20)
    inputs = *_inputs(size), integers(3, (batch, masked), length)
    params = filled(jax.eval_shape(model.init, {"params": key, "dropout": key}, *inputs), dtype)
    optimizer = optax.adamw(1e-4, eps=adam_epsilon(dtype), weight_decay=0.01)

    def loss(params: Any, *batch: Any) -> jax.Array:
        *inputs, labels, key = batch
        return cross_entropy(model.apply(params, *inputs, rngs={"dropout": key}), labels)

    step = training_step(loss, optimizer, "bert_training")
    return step, (params, mid_training(optimizer, params), *inputs, integers(4, (batch, masked), vocabulary), key)


def bert_inference(size: Size, dtype: DTypeLike) -> Made:
    """The encoder's output; ``size`` as for training."""
    _, _, features, layers, heads, vocabulary = size
    model, inputs = Bert(vocabulary, features, layers, heads), _inputs(size)
    params = filled(jax.eval_shape(model.init, jax.random.key(0), *inputs), dtype)

    def bert_inference(params: Any, *inputs: Any) -> jax.Array:
        return model.apply(params, *inputs)

    return bert_inference, (params, *inputs)


SMALL = ((2, 16, 32, 1, 2, 64), (3, 7, 20, 1, 2, 29))
BASE = (32, 128, 768, 12, 12, 30522)

WORKLOADS = (
    Workload("bert_training", "bert", bert_training, (8, 128, 256, 2, 4, 8000), SMALL, paper_size=BASE),
    Workload("bert_inference", "bert", bert_inference, (8, 128, 256, 2, 4, 8000), SMALL, paper_size=BASE),
)
