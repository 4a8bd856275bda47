"""Products of matrices with vectors and with few rows, and what stands around them: layers of small batches, gradients
of least squares, small convolutions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from bench.small.made import Made, Program, normal, uniform


def _dense(*widths: int, by_rows: bool = False) -> list[Any]:
    """Return weights and biases of layers; ``by_rows`` as Equinox and PyTorch have them, a row for each result."""
    layers: list[Any] = []
    for k, (wide, narrow) in enumerate(pairwise(widths)):
        dims = (narrow, wide) if by_rows else (wide, narrow)
        layers += [normal(2 * k, *dims) / wide**0.5, normal(2 * k + 1, narrow)]
    return layers


def layers(batch: int, *widths: int, by_rows: bool = False) -> Made:
    """Return the results of dense layers for a batch."""

    def run(x: Any, *weights: Any) -> Any:
        pairs = list(zip(weights[::2], weights[1::2], strict=True))
        for w, b in pairs[:-1]:
            x = jax.nn.gelu(x @ (w.T if by_rows else w) + b)
        w, b = pairs[-1]
        return x @ (w.T if by_rows else w) + b

    return run, (normal(99, batch, widths[0]), *_dense(*widths, by_rows=by_rows))


def layers_gradient(batch: int, *widths: int) -> Made:
    """Return the gradient of a loss over dense layers by all of their weights."""
    run, (x, *weights) = layers(batch, *widths)

    def loss(weights: Any, x: Any) -> Any:
        return jnp.mean(jnp.square(run(x, *weights)))

    return lambda x, *weights: jax.grad(loss)(list(weights), x), (x, *weights)


def policy(batch: int = 16) -> Made:
    """Return actions and values of an actor and a critic that share two layers."""
    shared, heads = _dense(64, 256, 256), [normal(7, 256, 12) / 16, normal(8, 256, 1) / 16]

    def run(x: Any, w: Any, b: Any, v: Any, c: Any, actor: Any, critic: Any) -> Any:
        h = jnp.tanh(jnp.tanh(x @ w + b) @ v + c)
        return jax.nn.log_softmax(h @ actor), h @ critic

    return run, (normal(9, batch, 64), *shared, *heads)


def least_squares(rows: int = 1000, columns: int = 400) -> Made:
    """Return a step of proximal gradient descent: a matrix and its transpose by vectors."""

    def run(a: Any, b: Any, x: Any) -> Any:
        z = x - 1e-3 * (a.T @ (a @ x - b))
        return jnp.sign(z) * jnp.maximum(jnp.abs(z) - 1e-2, 0)

    return run, (normal(0, rows, columns), normal(1, rows), normal(2, columns))


def logistic(rows: int = 2000, columns: int = 200) -> Made:
    """Return the loss of a logistic regression and its gradient."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.logaddexp(0, -y * (x @ w))) + 1e-3 * w @ w

    signs = normal(1, rows) > 0
    return lambda w, x, y: jax.value_and_grad(loss)(w, x, 2 * y - 1), (
        normal(2, columns) * 0.1,
        normal(0, rows, columns),
        signs.astype(float),
    )


def whitened(size: int = 600) -> Made:
    """Return a vector turned by an orthogonal matrix, scaled there and turned back."""
    return lambda q, scale, x: q @ (scale * (q.T @ x)), (
        normal(0, size, size) / size**0.5,
        uniform(1, 0.5, 2, size),
        normal(2, size),
    )


def cells(batch: int = 16, hidden: int = 512) -> Made:
    """Return the last state of a recurrent cell whose weights fill no core's cache."""

    def run(h: Any, xs: Any, w: Any) -> Any:
        return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), h, xs)[0]

    return run, (normal(0, batch, hidden), normal(1, 20, batch, hidden), normal(2, hidden, hidden) / hidden**0.5)


def convolution(batch: int, size: int, features: int, results: int) -> Made:
    """Return a layer of 3 x 3 windows, its bias and its function."""

    def run(x: Any, w: Any, b: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.nn.relu(y + b)

    return run, (normal(0, batch, size, size, features), normal(1, 3, 3, features, results) / 9, normal(2, results))


PROGRAMS = (
    Program("matrix_by_vector", "linear algebra", lambda: layers(1, 512, 512)),
    Program("transposed_by_vector", "linear algebra", whitened),
    Program("proximal_step", "sparse regression", least_squares),
    Program("logistic_gradient", "statistics", logistic),
    Program("layers_1", "inference", lambda: layers(1, 64, 256, 256, 10)),
    Program("layers_8", "inference", lambda: layers(8, 64, 512, 512, 10)),
    Program("layers_32", "inference", lambda: layers(32, 128, 512, 512, 10)),
    Program("layers_128", "inference", lambda: layers(128, 128, 512, 512, 10)),
    Program("layers_by_rows_8", "Equinox", lambda: layers(8, 64, 512, 512, 10, by_rows=True)),
    Program("layers_by_rows_32", "Equinox", lambda: layers(32, 64, 512, 512, 10, by_rows=True)),
    Program("layers_gradient_32", "training", lambda: layers_gradient(32, 64, 256, 256, 10)),
    Program("policy", "reinforcement learning", policy),
    Program("cells", "recurrent nets", cells),
    Program("convolution_3_8", "vision", lambda: convolution(1, 128, 3, 8)),
    Program("convolution_8_8", "vision", lambda: convolution(8, 32, 8, 8)),
    Program("convolution_32_32", "vision", lambda: convolution(8, 16, 32, 32)),
)
