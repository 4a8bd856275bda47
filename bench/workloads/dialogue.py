"""Dialogue generation: an answer sampled token by token by a GRU with attention to what was said."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from bench.workloads.base import Function, Size, Workload, filled, integers
from bench.workloads.recommendation import gru_cell

TEMPERATURE = 0.8


def _shapes(vocabulary: int, width: int, hidden: int) -> Any:
    def matrix(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def gru(inputs: int) -> Any:
        sizes = {"gates": 2 * hidden, "new": hidden}
        return {name: {"kernel": matrix(inputs + hidden, n), "bias": matrix(n)} for name, n in sizes.items()}

    return {
        "embedding": matrix(vocabulary, width),
        "listen": gru(width),
        "speak": gru(width + hidden),
        "query": matrix(hidden, hidden),
        "key": matrix(hidden, hidden),
        "blend": matrix(hidden),
        "out": matrix(2 * hidden, vocabulary),
    }


def dialogue_generation(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    """Tokens [steps, batch] and their log-probabilities; ``size`` is (batch, length, steps, width, hidden, vocabulary).

    Drawn by adding Gumbel noise, in float32 at every precision, so that a key draws the same tokens under x64.
    """
    batch, length, steps, width, hidden, vocabulary = size

    def dialogue_generation(params: Any, said: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        zero = jnp.zeros((said.shape[0], hidden), params["embedding"].dtype)

        def listen(h: jax.Array, word: jax.Array) -> tuple[jax.Array, jax.Array]:
            h = gru_cell(params["listen"], h, params["embedding"][word])
            return h, h

        h, memory = jax.lax.scan(listen, zero, said.T)
        keys = memory @ params["key"]

        def speak(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            h, token = carry
            scores = jnp.tanh(keys + h @ params["query"]) @ params["blend"]
            context = jnp.einsum("tb,tbh->bh", jax.nn.softmax(scores, axis=0), memory)
            h = gru_cell(params["speak"], h, jnp.concatenate([params["embedding"][token], context], -1))
            logits = jax.nn.log_softmax(jnp.concatenate([h, context], -1) @ params["out"] / TEMPERATURE)
            noise = jax.random.gumbel(key, logits.shape, jnp.float32).astype(logits.dtype)
            token = (logits + noise).argmax(-1).astype(jnp.int32)
            return (h, token), (token, jnp.take_along_axis(logits, token[:, None], -1)[:, 0])

        first = h, jnp.zeros(said.shape[0], jnp.int32)
        return jax.lax.scan(speak, first, jax.random.split(key, steps))[1]

    params = filled(_shapes(vocabulary, width, hidden), dtype)
    return dialogue_generation, (params, integers(90, (batch, length), vocabulary), jax.random.key(7))


WORKLOADS = (
    Workload(
        "dialogue_generation",
        "dialogue",
        dialogue_generation,
        (4, 20, 24, 128, 256, 4000),
        ((2, 4, 4, 8, 16, 32), (3, 5, 4, 7, 13, 29)),
        paper_size=(8, 32, 32, 512, 512, 32000),
    ),
)
