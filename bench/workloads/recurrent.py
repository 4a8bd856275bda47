"""Recurrent networks over rows of images and over sequences of different lengths, and one LSTM by itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from bench.workloads.base import Function, Size, Workload, filled, gradient, integers, normal
from bench.workloads.training import cross_entropy, mid_training, training_step
from jax_stitch.demo.adam import adam_epsilon

Made = tuple[Function, tuple[Any, ...]]


def lstm_shapes(inputs: int, hidden: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the parameters of one LSTM."""
    shapes = {"input": (inputs, 4 * hidden), "hidden": (hidden, 4 * hidden), "bias": (4 * hidden,)}
    return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}


def lstm_cell(params: Any, carry: tuple[jax.Array, jax.Array], x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The next (state, output), each [batch, hidden], from those before and ``x`` [batch, inputs]."""
    state, output = carry
    gates = x @ params["input"] + output @ params["hidden"] + params["bias"]
    keep, take, new, show = jnp.split(gates, 4, axis=-1)
    state = jax.nn.sigmoid(keep + 1) * state + jax.nn.sigmoid(take) * jnp.tanh(new)
    return state, jax.nn.sigmoid(show) * jnp.tanh(state)


def lstm(params: Any, xs: jax.Array, reverse: bool = False) -> jax.Array:
    """Outputs [steps, batch, hidden] for ``xs`` [steps, batch, inputs]."""
    zero = jnp.zeros((xs.shape[1], params["hidden"].shape[0]), xs.dtype)

    def step(carry: Any, x: jax.Array) -> tuple[Any, jax.Array]:
        carry = lstm_cell(params, carry, x)
        return carry, carry[1]

    return jax.lax.scan(step, (zero, zero), xs, reverse=reverse)[1]


def _classifier_shapes(features: int, classes: int) -> dict[str, jax.ShapeDtypeStruct]:
    return {
        "kernel": jax.ShapeDtypeStruct((features, classes), jnp.float32),
        "bias": jax.ShapeDtypeStruct((classes,), jnp.float32),
    }


def rnn_loss(params: Any, xs: jax.Array, labels: jax.Array) -> jax.Array:
    """Of the class told by the last output."""
    last = lstm(params["lstm"], xs)[-1]
    return cross_entropy(last @ params["top"]["kernel"] + params["top"]["bias"], labels)


def bidirectional_loss(params: Any, xs: jax.Array, labels: jax.Array) -> jax.Array:
    """Of the class told by the last outputs of both directions."""
    ends = lstm(params["forward"], xs)[-1], lstm(params["backward"], xs, reverse=True)[0]
    return cross_entropy(jnp.concatenate(ends, -1) @ params["top"]["kernel"] + params["top"]["bias"], labels)


def dynamic_loss(params: Any, xs: jax.Array, lengths: jax.Array, labels: jax.Array) -> jax.Array:
    """Of the class told by each sequence's output at its own end; ``lengths`` is [batch], from 1."""
    outputs = lstm(params["lstm"], xs)
    last = jnp.take_along_axis(outputs, (lengths - 1)[None, :, None], axis=0)[0]
    return cross_entropy(last @ params["top"]["kernel"] + params["top"]["bias"], labels)


def _sequences(size: Size, dtype: DTypeLike) -> tuple[jax.Array, jax.Array]:
    steps, batch, inputs, _, classes = size
    return normal(90, (steps, batch, inputs), dtype), integers(91, (batch,), classes)


def rnn(size: Size, dtype: DTypeLike) -> Made:
    """One training step; ``size`` is (steps, batch, inputs, hidden, classes)."""
    _, _, inputs, hidden, classes = size
    params = filled({"lstm": lstm_shapes(inputs, hidden), "top": _classifier_shapes(hidden, classes)}, dtype)
    optimizer = optax.sgd(0.001)
    return training_step(rnn_loss, optimizer, "rnn"), (params, optimizer.init(params), *_sequences(size, dtype))


def bidirectional_rnn(size: Size, dtype: DTypeLike) -> Made:
    """One training step; ``size`` as for ``rnn``."""
    _, _, inputs, hidden, classes = size
    one = lstm_shapes(inputs, hidden)
    params = filled({"forward": one, "backward": one, "top": _classifier_shapes(2 * hidden, classes)}, dtype)
    optimizer = optax.adam(0.001, eps=adam_epsilon(dtype))
    step = training_step(bidirectional_loss, optimizer, "bidirectional_rnn")
    return step, (params, mid_training(optimizer, params), *_sequences(size, dtype))


def dynamic_rnn(size: Size, dtype: DTypeLike) -> Made:
    """One training step; ``size`` as for ``rnn``."""
    steps, batch, inputs, hidden, classes = size
    params = filled({"lstm": lstm_shapes(inputs, hidden), "top": _classifier_shapes(hidden, classes)}, dtype)
    optimizer = optax.sgd(0.01)
    xs, labels = _sequences(size, dtype)
    step = training_step(dynamic_loss, optimizer, "dynamic_rnn")
    return step, (params, optimizer.init(params), xs, 1 + integers(92, (batch,), steps), labels)


def lstm_forward(size: Size, dtype: DTypeLike) -> Made:
    """Outputs alone; ``size`` is (steps, batch, hidden)."""
    steps, batch, hidden = size
    return lstm, (filled(lstm_shapes(hidden, hidden), dtype), normal(90, (steps, batch, hidden), dtype))


def lstm_gradient(size: Size, dtype: DTypeLike) -> Made:
    """Cotangents of parameters and inputs; ``size`` is (steps, batch, hidden)."""
    return gradient(lstm, 2), (*lstm_forward(size, dtype)[1], normal(93, size, dtype))


SMALL = ((4, 8, 16, 16, 8), (5, 7, 13, 11, 3))

WORKLOADS = (
    Workload("rnn", "recurrent", rnn, (28, 128, 28, 128, 10), SMALL),
    Workload("bidirectional_rnn", "recurrent", bidirectional_rnn, (28, 128, 28, 128, 10), SMALL),
    Workload("dynamic_rnn", "recurrent", dynamic_rnn, (20, 128, 1, 64, 2), SMALL),
    Workload("lstm", "recurrent", lstm_forward, (64, 32, 128), ((8, 8, 16), (5, 7, 11))),
    Workload("lstm_gradient", "recurrent", lstm_gradient, (64, 32, 128), ((8, 8, 16), (5, 7, 11))),
)
