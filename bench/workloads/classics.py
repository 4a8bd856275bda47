"""Small models of the papers: logistic regression, word2vec, a perceptron, a variational auto-encoder.

Sizes are those of the public TensorFlow examples that the 2018 and 2019 papers name.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from bench.workloads.base import Function, Size, Workload, filled, integers, normal
from bench.workloads.training import cross_entropy, mid_training, training_step
from jax_stitch.demo.adam import adam_epsilon

Made = tuple[Function, tuple[Any, ...]]


def logistic_loss(params: Any, x: jax.Array, labels: jax.Array) -> jax.Array:
    """``x`` is [batch, features], ``labels`` [batch]."""
    return cross_entropy(x @ params["kernel"] + params["bias"], labels)


def _classifier(features: int, classes: int, dtype: DTypeLike) -> dict[str, jax.Array]:
    return {"kernel": normal(0, (features, classes), dtype, features**-0.5), "bias": normal(1, (classes,), dtype, 0.1)}


def logistic_regression(size: Size, dtype: DTypeLike) -> Made:
    """One step of gradient descent; ``size`` is (batch, features, classes)."""
    batch, features, classes = size
    optimizer = optax.sgd(0.01)
    params = _classifier(features, classes, dtype)
    step = training_step(logistic_loss, optimizer, "logistic_regression")
    return step, (params, optimizer.init(params), normal(2, (batch, features), dtype), integers(3, (batch,), classes))


def logistic_regression_epoch(size: Size, dtype: DTypeLike) -> Made:
    """Those steps one after another in a ``scan``; ``size`` is (steps, batch, features, classes)."""
    steps, batch, features, classes = size

    def logistic_regression_epoch(params: Any, x: jax.Array, labels: jax.Array) -> Any:
        def step(params: Any, data: Any) -> tuple[Any, jax.Array]:
            loss, grads = jax.value_and_grad(logistic_loss)(params, *data)
            return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss

        return jax.lax.scan(step, params, (x, labels))

    x, labels = normal(2, (steps, batch, features), dtype), integers(3, (steps, batch), classes)
    return logistic_regression_epoch, (_classifier(features, classes, dtype), x, labels)


def skip_gram_loss(
    params: Any, words: jax.Array, contexts: jax.Array, sampled: jax.Array, log_chance: jax.Array
) -> jax.Array:
    """Noise-contrastive loss of word2vec: one true context and shared noise words for each word.

    ``words`` and ``contexts`` are [batch], ``sampled`` [noise], ``log_chance`` [vocabulary].
    """
    centre = params["embedding"][words]
    true = (centre * params["kernel"][contexts]).sum(-1) + params["bias"][contexts] - log_chance[contexts]
    noise = centre @ params["kernel"][sampled].T + params["bias"][sampled] - log_chance[sampled]
    return (jax.nn.softplus(-true) + jax.nn.softplus(noise).sum(-1)).mean()


def word2vec(size: Size, dtype: DTypeLike) -> Made:
    """One step; ``size`` is (batch, vocabulary, width, noise words)."""
    batch, vocabulary, width, noise = size
    shapes = {"embedding": (vocabulary, width), "kernel": (vocabulary, width), "bias": (vocabulary,)}
    params = {name: normal(i, shape, dtype, width**-0.5) for i, (name, shape) in enumerate(shapes.items())}
    optimizer = optax.sgd(0.1)
    words, contexts, sampled = (integers(10 + i, (n,), vocabulary) for i, n in enumerate((batch, batch, noise)))
    log_chance = (jnp.log(noise / vocabulary) + normal(20, (vocabulary,), jnp.float32, 0.5)).astype(dtype)
    step = training_step(skip_gram_loss, optimizer, "word2vec")
    return step, (params, optimizer.init(params), words, contexts, sampled, log_chance)


class Perceptron(nn.Module):
    """Two hidden layers of rectified linear units."""

    hidden: int
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for _ in range(2):
            x = nn.relu(nn.Dense(self.hidden)(x))
        return nn.Dense(self.classes)(x)


def perceptron(size: Size, dtype: DTypeLike) -> Made:
    """One step with Adam; ``size`` is (batch, features, hidden, classes)."""
    batch, features, hidden, classes = size
    model = Perceptron(hidden, classes)
    x, labels = normal(50, (batch, features), dtype), integers(51, (batch,), classes)
    params = filled(jax.eval_shape(model.init, jax.random.key(0), x), dtype)
    optimizer = optax.adam(1e-3, eps=adam_epsilon(dtype))

    def loss(params: Any, x: jax.Array, labels: jax.Array) -> jax.Array:
        return cross_entropy(model.apply(params, x), labels)

    return training_step(loss, optimizer, "perceptron"), (params, mid_training(optimizer, params), x, labels)


class AutoEncoder(nn.Module):
    """Encoder to a normal distribution, a sample of it, and a decoder to Bernoulli logits."""

    hidden: int
    latent: int

    @nn.compact
    def __call__(self, x: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Logits, means and log variances; ``noise`` is [batch, latent]."""
        encoded = nn.tanh(nn.Dense(self.hidden)(x))
        mean, log_variance = nn.Dense(self.latent)(encoded), nn.Dense(self.latent)(encoded)
        decoded = nn.tanh(nn.Dense(self.hidden)(mean + jnp.exp(log_variance / 2) * noise))
        return nn.Dense(x.shape[-1])(decoded), mean, log_variance


def variational_auto_encoder(size: Size, dtype: DTypeLike) -> Made:
    """One step with RMSProp; ``size`` is (batch, features, hidden, latent)."""
    batch, features, hidden, latent = size
    model = AutoEncoder(hidden, latent)
    x, key = jax.nn.sigmoid(normal(50, (batch, features), dtype)), jax.random.key(7)
    params = filled(jax.eval_shape(model.init, jax.random.key(0), x, normal(0, (batch, latent), dtype)), dtype)
    optimizer = optax.rmsprop(1e-3)

    def loss(params: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, (x.shape[0], latent), jnp.float32).astype(x.dtype)  # the same under x64
        logits, mean, log_variance = model.apply(params, x, noise)
        rebuilt = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1)
        divergence = 0.5 * (jnp.exp(log_variance) + jnp.square(mean) - 1 - log_variance).sum(-1)
        return (rebuilt + divergence).mean()

    step = training_step(loss, optimizer, "variational_auto_encoder")
    return step, (params, mid_training(optimizer, params), x, key)


WORKLOADS = (
    Workload("logistic_regression", "classics", logistic_regression, (100, 784, 10), ((16, 32, 8), (13, 29, 7))),
    Workload(
        "logistic_regression_epoch",
        "classics",
        logistic_regression_epoch,
        (550, 100, 784, 10),
        ((8, 16, 32, 8), (5, 13, 29, 7)),
    ),
    Workload("word2vec", "classics", word2vec, (128, 50000, 200, 64), ((16, 128, 32, 8), (13, 101, 19, 7))),
    Workload("perceptron", "classics", perceptron, (100, 784, 256, 10), ((16, 32, 32, 8), (13, 29, 23, 7))),
    Workload(
        "variational_auto_encoder",
        "classics",
        variational_auto_encoder,
        (64, 784, 512, 2),
        ((16, 32, 32, 2), (13, 29, 23, 3)),
    ),
)
