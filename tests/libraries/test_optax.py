"""Optax: optimizers that differ in what they keep and compute."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.libraries.compared import Jit, compared, waves

OPTIMIZERS = {
    "adamw, clipped, on a schedule": optax.chain(
        optax.clip_by_global_norm(0.5), optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10))
    ),
    "lamb": optax.lamb(1e-2),
    "adafactor": optax.adafactor(1e-2),
    "lion": optax.lion(1e-3),
    "rmsprop": optax.rmsprop(1e-2, centered=True, momentum=0.9),
    "accumulating": optax.MultiSteps(optax.adam(1e-2), 2),
    "lookahead to infinity": optax.apply_if_finite(optax.adagrad(0.1), 3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name: str) -> None:
    optimizer = OPTIMIZERS[name]
    params = {"w": waves(16, 16), "b": jnp.asarray(np.zeros(16, np.float32)), "scale": jnp.float32(1)}
    x = waves(8, 16) + 0.25

    def loss(p: Any) -> jax.Array:
        return ((jnp.tanh(x @ p["w"] + p["b"]) * p["scale"] - x) ** 2).mean()

    def run(jit: Jit) -> Any:
        @jit
        def step(p: Any, state: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(p)
            updates, state = optimizer.update(grads, state, p)
            return optax.apply_updates(p, updates), state, value

        now, state, losses = params, jax.jit(optimizer.init)(params), []
        for _ in range(4):
            now, state, value = step(now, state)
            losses.append(value)
        return now, losses

    compared(run, 1e-3)
