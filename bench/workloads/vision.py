"""CRNN: text in images of lines, by convolutions, a bidirectional LSTM over the columns, and greedy decoding."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from bench.workloads.base import Function, Size, Workload, filled, normal
from bench.workloads.recurrent import lstm, lstm_shapes
from bench.workloads.speech import greedy_path

# Channels as multiples of the narrowest layer's, batch normalisation, and the window and stride of the pooling after.
LAYERS = ((1, False, (2, 2)), (2, False, (2, 2)), (4, True, None), (4, False, (2, 1)), (8, True, (2, 1)))


class Columns(nn.Module):
    """Features [batch, width / 4, features] of the columns of images [batch, 32, width, 1]."""

    channels: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for multiple, normalise, pool in LAYERS:
            x = nn.Conv(multiple * self.channels, (3, 3))(x)
            if normalise:
                x = nn.BatchNorm(use_running_average=True)(x)
            x = nn.relu(x)
            if pool is not None:
                x = nn.max_pool(x, pool, pool)
        x = nn.relu(nn.Conv(8 * self.channels, (2, 1), padding="VALID")(x))
        return x[:, 0]


def crnn_inference(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    """Images to tokens; ``size`` is (batch, width, channels, hidden, tokens), width a multiple of 4."""
    batch, width, channels, hidden, tokens = size
    model, images = Columns(channels), normal(90, (batch, 32, width, 1), dtype)
    features = 8 * channels
    shapes = {
        "columns": jax.eval_shape(model.init, jax.random.key(0), images),
        "forward": [lstm_shapes(features, hidden), lstm_shapes(2 * hidden, hidden)],
        "backward": [lstm_shapes(features, hidden), lstm_shapes(2 * hidden, hidden)],
        "top": {
            "kernel": jax.ShapeDtypeStruct((2 * hidden, tokens), jnp.float32),
            "bias": jax.ShapeDtypeStruct((tokens,), jnp.float32),
        },
    }

    def crnn_inference(params: Any, images: jax.Array) -> tuple[jax.Array, jax.Array]:
        xs = model.apply(params["columns"], images).transpose(1, 0, 2)
        for forward, backward in zip(params["forward"], params["backward"], strict=True):
            xs = jnp.concatenate([lstm(forward, xs), lstm(backward, xs, reverse=True)], -1)
        scores = jax.nn.log_softmax(xs @ params["top"]["kernel"] + params["top"]["bias"]).transpose(1, 0, 2)
        return greedy_path(scores, jnp.full(scores.shape[:1], scores.shape[1]))

    return crnn_inference, (filled(shapes, dtype), images)


WORKLOADS = (
    Workload(
        "crnn_inference",
        "vision",
        crnn_inference,
        (8, 100, 16, 64, 37),
        ((2, 16, 4, 8, 8), (3, 20, 3, 7, 11)),
        paper_size=(8, 100, 64, 256, 37),
    ),
)
