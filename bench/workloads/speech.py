"""Speech: training of a Conformer-like acoustic model, and recognition by a Transformer encoder, decoded greedily."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from bench.workloads.attention import Attention, EncoderLayer, FeedForward, keep_mask, positions
from bench.workloads.base import Function, Size, Workload, filled, integers, normal
from bench.workloads.training import cross_entropy, mid_training, training_step

Made = tuple[Function, tuple[Any, ...]]


def normalised(frames: jax.Array) -> jax.Array:
    """Each utterance's features with mean 0 and variance 1 over time; ``frames`` is [batch, time, features]."""
    centred = frames - frames.mean(1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(1, keepdims=True) + 1e-5)


def in_context(frames: jax.Array, reach: int) -> jax.Array:
    """Each frame beside its ``reach`` neighbours on either side: [batch, time, (2 reach + 1) features]."""
    time = frames.shape[1]
    padded = jnp.pad(frames, ((0, 0), (reach, reach), (0, 0)))
    return jnp.concatenate([padded[:, i : i + time] for i in range(2 * reach + 1)], -1)


class Convolution(nn.Module):
    """The Conformer's convolution module: a gate, a depthwise convolution over time, batch statistics, swish."""

    width: int = 15

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        features = x.shape[-1]
        value, gate = jnp.split(nn.Dense(2 * features)(nn.LayerNorm()(x)), 2, -1)
        x = value * nn.sigmoid(gate)
        taps = self.param("taps", nn.initializers.normal(), (self.width, features))
        padded = jnp.pad(x, ((0, 0), (self.width // 2, self.width // 2), (0, 0)))
        x = sum(padded[:, i : i + x.shape[1]] * taps[i] for i in range(self.width))
        centred = x - x.mean((0, 1))
        x = centred * jax.lax.rsqrt(jnp.square(centred).mean((0, 1)) + 1e-5)
        scale = self.param("scale", nn.initializers.ones, (features,))
        return nn.Dense(features)(nn.swish(x * scale))


class ConformerLayer(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward."""

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + 0.5 * FeedForward()(nn.LayerNorm()(x))
        y = nn.LayerNorm()(x)
        x = x + Attention(self.heads)(y, y)
        x = x + Convolution()(x)
        return nn.LayerNorm()(x + 0.5 * FeedForward()(nn.LayerNorm()(x)))


class Acoustic(nn.Module):
    """Logits [batch, time, states] for frames [batch, time, mels]."""

    features: int
    layers: int
    heads: int
    states: int

    @nn.compact
    def __call__(self, frames: jax.Array) -> jax.Array:
        x = nn.Dense(self.features)(in_context(normalised(frames), 3))
        for _ in range(self.layers):
            x = ConformerLayer(self.heads)(x)
        return nn.Dense(self.states)(x)


def speech_training(size: Size, dtype: DTypeLike) -> Made:
    """One step on labelled frames; ``size`` is (batch, time, mels, features, layers, heads, states)."""
    batch, time, mels, features, layers, heads, states = size
    model = Acoustic(features, layers, heads, states)
    frames, labels = normal(90, (batch, time, mels), dtype, 2.0, 1.0), integers(91, (batch, time), states)
    params = filled(jax.eval_shape(model.init, jax.random.key(0), frames), dtype)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.01, momentum=0.9))

    def loss(params: Any, frames: jax.Array, labels: jax.Array) -> jax.Array:
        return cross_entropy(model.apply(params, frames), labels)

    step = training_step(loss, optimizer, "speech_training")
    return step, (params, mid_training(optimizer, params), frames, labels)


class Recogniser(nn.Module):
    """Log-probabilities [batch, time / 4, tokens]; every four frames are one position."""

    features: int
    layers: int
    heads: int
    tokens: int

    @nn.compact
    def __call__(self, frames: jax.Array, lengths: jax.Array) -> jax.Array:
        batch, time, mels = frames.shape
        x = normalised(frames).reshape(batch, time // 4, 4 * mels)
        x = nn.Dense(self.features)(x) + positions(time // 4, self.features).astype(x.dtype)
        visible = keep_mask(lengths, time // 4)
        for _ in range(self.layers):
            x = EncoderLayer(self.heads)(x, visible)
        return nn.log_softmax(nn.Dense(self.tokens)(x))


def greedy_path(scores: jax.Array, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The best token of each position where it is not blank (0), repeated or past the end, else -1; and its score.

    ``scores`` is [batch, time, tokens], the results are [batch, time] and [batch].
    """
    best, score = scores.argmax(-1).astype(jnp.int32), scores.max(-1)
    before = jnp.pad(best[:, :-1], ((0, 0), (1, 0)))
    inside = jnp.arange(best.shape[1])[None, :] < lengths[:, None]
    return jnp.where((best != 0) & (best != before) & inside, best, -1), jnp.where(inside, score, 0).sum(-1)


def asr_inference(size: Size, dtype: DTypeLike) -> Made:
    """Frames to tokens; ``size`` is (batch, time, mels, features, layers, heads, tokens), time a multiple of 4."""
    batch, time, mels, features, layers, heads, tokens = size
    model = Recogniser(features, layers, heads, tokens)
    frames, lengths = normal(90, (batch, time, mels), dtype, 2.0, 1.0), 1 + integers(91, (batch,), time // 4)
    params = filled(jax.eval_shape(model.init, jax.random.key(0), frames, lengths), dtype)

    def asr_inference(params: Any, frames: jax.Array, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
        return greedy_path(model.apply(params, frames, lengths), lengths)

    return asr_inference, (params, frames, lengths)


SMALL = ((2, 16, 8, 32, 1, 2, 16), (3, 20, 7, 20, 1, 2, 11))

WORKLOADS = (
    Workload(
        "speech_training",
        "speech",
        speech_training,
        (8, 128, 40, 144, 2, 4, 500),
        SMALL,
        paper_size=(32, 512, 80, 256, 8, 4, 4000),
    ),
    Workload(
        "asr_inference",
        "speech",
        asr_inference,
        (8, 256, 80, 256, 2, 4, 2000),
        SMALL,
        paper_size=(8, 1024, 80, 512, 12, 8, 4000),
    ),
)
