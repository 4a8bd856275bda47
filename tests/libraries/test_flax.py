"""Flax: modules of linen, with dropout and batch statistics, and of nnx in its functional form."""

from __future__ import annotations

from typing import Any

import jax
import optax
import pytest
from flax import linen, nnx

from tests.libraries.compared import Jit, batch, compared, waves


class Classifier(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        x = linen.Dense(32, use_bias=False)(x)  # a bias before BatchNorm has no gradient but rounding errors
        x = linen.BatchNorm(use_running_average=not train)(x)
        x = linen.Dropout(0.2, deterministic=not train)(linen.gelu(x))
        return linen.Dense(4)(linen.LayerNorm()(x))


def test_linen_training_step() -> None:
    x, labels = batch()
    model = Classifier()
    variables = jax.jit(model.init, static_argnames="train")(jax.random.key(0), x, train=False)
    optimizer = optax.sgd(0.1)  # Others are in ``test_optax.py``.

    def run(jit: Jit) -> Any:
        @jit
        def step(variables: Any, state: Any, key: jax.Array) -> Any:
            def loss(params: Any) -> Any:
                given = {"params": params, "batch_stats": variables["batch_stats"]}
                logits, changed = model.apply(given, x, train=True, rngs={"dropout": key}, mutable=["batch_stats"])
                return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), changed

            (value, changed), grads = jax.value_and_grad(loss, has_aux=True)(variables["params"])
            updates, state = optimizer.update(grads, state, variables["params"])
            return {"params": optax.apply_updates(variables["params"], updates), **changed}, state, value

        now, state, losses = variables, jax.jit(optimizer.init)(variables["params"]), []
        for i in range(3):
            now, state, value = step(now, state, jax.random.key(i))
            losses.append(value)
        return now, losses, jit(lambda v: model.apply(v, x, train=False))(now)

    _, losses, _ = compared(run, 1e-3)
    assert losses[-1] < losses[0]


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(8, 32, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.second = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(self.dropout(nnx.gelu(self.norm(self.first(x)))))


def test_nnx_inference() -> None:
    """``nnx.jit`` is Flax's own; its functional form, ``nnx.split`` and ``nnx.merge``, takes any jit."""
    model = nnx.jit(lambda: Network(nnx.Rngs(0)))()
    model.eval()
    graphdef, weights = nnx.split(model)
    compared(lambda jit: jit(lambda weights, x: nnx.merge(graphdef, weights)(x))(weights, batch()[0]))


@pytest.mark.slow
def test_nnx_training_step() -> None:
    x, labels = batch()

    def loss(model: Network) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()

    model = nnx.jit(lambda: Network(nnx.Rngs(0)))()
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    graphdef, first = nnx.split((model, optimizer))

    def run(jit: Jit) -> Any:
        @jit
        def step(state: Any) -> Any:
            model, optimizer = nnx.merge(graphdef, state)
            value, grads = nnx.value_and_grad(loss)(model)
            optimizer.update(model, grads)
            return nnx.state((model, optimizer)), value

        state, losses = first, []
        for _ in range(3):
            state, value = step(state)
            losses.append(value)
        trained, _ = nnx.merge(graphdef, state)
        trained.eval()
        frozen, weights = nnx.split(trained)
        return losses, jit(lambda weights: nnx.merge(frozen, weights)(x))(weights)

    losses, _ = compared(run, 1e-3)
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_linen_recurrent_inference() -> None:
    model = linen.RNN(linen.GRUCell(16))
    x = waves(4, 12, 8)
    variables = jax.jit(model.init)(jax.random.key(0), x)
    compared(lambda jit: jit(model.apply)(variables, x))
