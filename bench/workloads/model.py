"""A GELU MLP, and the training step that the demo runs."""

from __future__ import annotations

from typing import Any

import jax
from jax.typing import DTypeLike

from bench.workloads.base import Function, Size, Workload, normal
from jax_stitch.demo.block import make_training_step


def gelu_mlp(x: jax.Array, w_in: jax.Array, b_in: jax.Array, w_out: jax.Array, b_out: jax.Array) -> jax.Array:
    """``x`` is [tokens, features]; the hidden layer is four times as wide."""
    return jax.nn.gelu(x @ w_in + b_in) @ w_out + b_out


def _gelu_mlp(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
    features = size[1]
    hidden = 4 * features
    return gelu_mlp, (
        normal(0, size, dtype),
        normal(1, (features, hidden), dtype, features**-0.5),
        normal(2, (hidden,), dtype, 0.1),
        normal(3, (hidden, features), dtype, hidden**-0.5),
        normal(4, (features,), dtype, 0.1),
    )


WORKLOADS = (
    Workload("gelu_mlp", "model", _gelu_mlp, (2048, 1024), ((256, 128), (123, 100)), xla_launches=3),
    Workload("training_step", "model", make_training_step, (8, 256, 512), ((2, 16, 32), (3, 13, 36)), xla_launches=72),
)
