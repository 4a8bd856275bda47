"""Haiku: transformed functions, with state and random numbers."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import optax
import pytest

from tests.libraries.compared import Jit, batch, compared, waves


def network(x: jax.Array, train: bool) -> jax.Array:
    x = hk.Linear(32, with_bias=False)(x)
    x = hk.BatchNorm(True, True, 0.9)(x, is_training=train)
    x = jax.nn.relu(x)
    if train:
        x = hk.dropout(hk.next_rng_key(), 0.2, x)
    return hk.Linear(4)(hk.LayerNorm(-1, True, True)(x))


@pytest.mark.slow
def test_training_step() -> None:
    x, labels = batch()
    model = hk.transform_with_state(network)
    params, state = jax.jit(model.init, static_argnums=2)(jax.random.key(0), x, True)
    optimizer = optax.sgd(0.1, momentum=0.9, nesterov=True)

    def run(jit: Jit) -> Any:
        @jit
        def step(params: Any, state: Any, moments: Any, key: jax.Array) -> Any:
            def loss(params: Any) -> Any:
                logits, changed = model.apply(params, state, key, x, True)
                return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), changed

            (value, changed), grads = jax.value_and_grad(loss, has_aux=True)(params)
            updates, moments = optimizer.update(grads, moments)
            return optax.apply_updates(params, updates), changed, moments, value

        now, changed, moments, losses = params, state, jax.jit(optimizer.init)(params), []
        for i in range(3):
            now, changed, moments, value = step(now, changed, moments, jax.random.key(i))
            losses.append(value)
        infer = jit(model.apply, static_argnums=4)
        return now, changed, losses, infer(now, changed, None, x, False)[0]

    _, _, losses, _ = compared(run, 1e-3)
    assert losses[-1] < losses[0]


def test_recurrent_inference() -> None:
    def unrolled(x: jax.Array) -> jax.Array:
        core = hk.LSTM(16)
        return hk.dynamic_unroll(core, x, core.initial_state(4))[0]

    model = hk.without_apply_rng(hk.transform(unrolled))
    x = waves(12, 4, 8)
    params = jax.jit(model.init)(jax.random.key(0), x)
    compared(lambda jit: jit(model.apply)(params, x))
