"""Neural machine translation with attention, small batch: the encoder once, then the decoder token by token."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from bench.workloads.attention import EncoderLayer, FeedForward, keep_mask, positions
from bench.workloads.base import Function, Size, Workload, filled, integers

Caches = tuple[tuple[jax.Array, jax.Array], ...]


def attended(query: jax.Array, keys: jax.Array, values: jax.Array, visible: jax.Array) -> jax.Array:
    """Attention of one position: ``query`` [batch, heads, width], keys and values [batch, steps, heads, width]."""
    scores = jnp.einsum("bhw,bshw->bhs", query, keys) / query.shape[-1] ** 0.5
    weights = jax.nn.softmax(jnp.where(visible, scores, -1e9))
    return jnp.einsum("bhs,bshw->bhw", weights, values)


class StepLayer(nn.Module):
    """A decoder layer for one position, with the keys and values of those before in a cache."""

    heads: int

    @nn.compact
    def __call__(
        self, x: jax.Array, i: jax.Array, cache: tuple[jax.Array, jax.Array], memory: jax.Array, visible: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """``x`` is [batch, features], a cache [batch, steps, heads, width], ``memory`` [batch, length, features]."""
        features = x.shape[-1]
        head = (self.heads, features // self.heads)
        query, key, value = (nn.DenseGeneral(head)(x) for _ in range(3))
        keys, values = (
            jax.lax.dynamic_update_index_in_dim(old, new, i, 1) for old, new in zip(cache, (key, value), strict=True)
        )
        past = (jnp.arange(keys.shape[1]) <= i)[None, None, :]
        x = nn.LayerNorm()(x + nn.Dense(features)(attended(query, keys, values, past).reshape(x.shape)))
        other, others = nn.DenseGeneral(head)(memory), nn.DenseGeneral(head)(memory)
        found = attended(nn.DenseGeneral(head)(x), other, others, visible)
        x = nn.LayerNorm()(x + nn.Dense(features)(found.reshape(x.shape)))
        return nn.LayerNorm()(x + FeedForward()(x)), (keys, values)


class Translator(nn.Module):
    """Encoder, and one step of the decoder."""

    vocabulary: int
    features: int
    layers: int
    heads: int

    def setup(self) -> None:
        self.embed = nn.Embed(self.vocabulary, self.features)
        self.encoder = [EncoderLayer(self.heads) for _ in range(self.layers)]
        self.decoder = [StepLayer(self.heads) for _ in range(self.layers)]

    def encode(self, source: jax.Array, visible: jax.Array) -> jax.Array:
        x = self.embed(source)
        x = x + positions(source.shape[1], self.features).astype(x.dtype)
        for layer in self.encoder:
            x = layer(x, visible)
        return x

    def step(
        self, token: jax.Array, i: jax.Array, caches: Caches, memory: jax.Array, visible: jax.Array
    ) -> tuple[jax.Array, Caches]:
        """Logits [batch, vocabulary] of the token after ``token`` [batch] at position ``i``, and the caches with it."""
        x = self.embed(token)
        x = x + positions(caches[0][0].shape[1], self.features).astype(x.dtype)[i]
        after = []
        for layer, cache in zip(self.decoder, caches, strict=True):
            x, cache = layer(x, i, cache, memory, visible)
            after.append(cache)
        return self.embed.attend(x), tuple(after)

    def __call__(self, source: jax.Array, lengths: jax.Array, steps: int) -> jax.Array:
        """All parameters are used: for their shapes."""
        visible = keep_mask(lengths, source.shape[1])
        memory = self.encode(source, visible)
        return self.step(source[:, 0], jnp.int32(0), self.caches(memory, steps), memory, visible[:, 0])[0]

    def caches(self, memory: jax.Array, steps: int) -> Caches:
        """Empty, for ``steps`` positions."""
        shape = (memory.shape[0], steps, self.heads, self.features // self.heads)
        return tuple((jnp.zeros(shape, memory.dtype), jnp.zeros(shape, memory.dtype)) for _ in range(self.layers))


def nmt_inference(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    """Greedy translation; ``size`` is (batch, length, steps, features, layers, heads, vocabulary)."""
    batch, length, steps, features, layers, heads, vocabulary = size
    model = Translator(vocabulary, features, layers, heads)
    source, lengths = integers(0, (batch, length), vocabulary), 1 + integers(1, (batch,), length)
    params = filled(jax.eval_shape(lambda *args: model.init(*args, steps), jax.random.key(0), source, lengths), dtype)

    def nmt_inference(params: Any, source: jax.Array, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
        visible = keep_mask(lengths, source.shape[1])
        memory = model.apply(params, source, visible, method="encode")

        def step(carry: tuple[jax.Array, Caches], i: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
            token, caches = carry
            logits, caches = model.apply(params, token, i, caches, memory, visible[:, 0], method="step")
            scores = jax.nn.log_softmax(logits)
            token = scores.argmax(-1).astype(jnp.int32)
            return (token, caches), (token, scores.max(-1))

        first = jnp.zeros(source.shape[0], jnp.int32), model.caches(memory, steps)
        return jax.lax.scan(step, first, jnp.arange(steps, dtype=jnp.int32))[1]

    return nmt_inference, (params, source, lengths)


WORKLOADS = (
    Workload(
        "nmt_inference",
        "translation",
        nmt_inference,
        (1, 32, 32, 256, 2, 4, 4000),
        ((2, 8, 4, 32, 1, 2, 32), (3, 7, 5, 20, 1, 2, 29)),
        paper_size=(1, 32, 32, 512, 6, 8, 32000),
    ),
)
