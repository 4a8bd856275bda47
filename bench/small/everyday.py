"""Everyday programs without loops or with short ones: statistics, losses, images, tables, optimizers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench.small.made import Made, Program, normal, uniform


def of(function: Callable[..., Any], *args: Any) -> Callable[[], Made]:
    """Return the factory of a program from a function and its arguments."""
    return lambda: (function, args)


def selective_scan() -> Made:
    """Return a state-space layer: linear recurrences by ``associative_scan``, then a product with output weights."""

    def run(a: Any, b: Any, c: Any) -> Any:
        def after(one: Any, other: Any) -> Any:
            return one[0] * other[0], other[0] * one[1] + other[1]

        return jnp.einsum("bldn,bln->bld", lax.associative_scan(after, (a, b), axis=1)[1], c)

    return run, (uniform(0, 0.5, 1.0, 2, 128, 64, 16), normal(1, 2, 128, 64, 16), normal(2, 2, 128, 16))


def linear_recurrence() -> Made:
    """Return discounted sums by ``associative_scan``."""

    def run(gamma: Any, x: Any) -> Any:
        return lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (gamma, x), reverse=True)[1]

    return run, (uniform(0, 0.9, 1.0, 1000, 8), normal(1, 1000, 8))


def block_quantisation(x: Any) -> Any:
    """Return numbers rounded to four bits, and a scale for each block."""
    scale = jnp.max(jnp.abs(x), -1, keepdims=True) / 7 + 1e-8
    return jnp.clip(jnp.round(x / scale), -8, 7) * scale, scale


def total_variation(x: Any) -> Any:
    """Return the sum of absolute differences of neighbours in images."""
    return sum(jnp.sum(jnp.abs(jnp.diff(x, axis=k))) for k in (1, 2))


def unrolled_scan() -> Made:
    """Return a scan that is unrolled by ten."""

    def run(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(w * h + x)
            return h, h

        return lax.scan(step, w * 0, xs, unroll=10)

    return run, (normal(0, 32), normal(1, 200, 32))


def sinkhorn() -> Made:
    """Return a batch of optimal transport problems, solved in the log domain."""

    def one(costs: Any, a: Any, b: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            f, h = carry
            f = jnp.log(a) - jax.nn.logsumexp(h[None] - costs, 1)
            return (f, jnp.log(b) - jax.nn.logsumexp(f[:, None] - costs, 0)), None

        return lax.scan(step, (a * 0, b * 0), None, length=10)[0]

    return jax.vmap(one), (uniform(0, 0.0, 1.0, 16, 20, 24), np.full((16, 20), 0.05), np.full((16, 24), 1 / 24))


def many_arrays(count: int = 40) -> Made:
    """Return a program of many small arrays, each changed separately."""
    return (lambda *xs: [jnp.tanh(x * 2) + xs[0] for x in xs]), tuple(normal(k, 7) for k in range(count))


def adam(params: Any, grads: Any, mean: Any, square: Any) -> Any:
    """Return one step of Adam over the tensors of a neural network."""

    def one(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * (m / 0.1) / (jnp.sqrt(v / 0.001) + 1e-8), m, v

    return [one(*each) for each in zip(params, grads, mean, square, strict=True)]


def tensors(seed: int, positive: bool = False) -> Any:
    shapes = ((256, 256), (256,), (256, 64), (64,), (64, 10), (10,))
    made = [normal(seed + k, *shape) for k, shape in enumerate(shapes)]
    return [np.abs(x) for x in made] if positive else made


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    for w, b in zip(params[::2], params[1::2], strict=True):
        x = jax.nn.gelu(x @ w + b)
    return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(x), -1))


def runge_kutta(x: Any) -> Any:
    """Integrate the Lorenz equations for many points with a fourth-order Runge-Kutta method."""

    def slope(p: Any) -> Any:
        a, b, c = p
        return jnp.stack([10 * (b - a), a * (28 - c) - b, a * b - c * 8 / 3])

    def step(_: Any, p: Any) -> Any:
        h = 0.01
        one = slope(p)
        two = slope(p + h / 2 * one)
        three = slope(p + h / 2 * two)
        return p + h / 6 * (one + 2 * two + 2 * three + slope(p + h * three))

    return lax.fori_loop(0, 100, step, x)


def markov_forward(moves: Any, seen: Any) -> Any:
    """Return the log-likelihood under a hidden Markov model."""

    def step(alpha: Any, x: Any) -> Any:
        alpha = jax.nn.logsumexp(alpha[:, None] + moves, 0) + x
        return alpha, None

    return jax.nn.logsumexp(lax.scan(step, seen[0], seen[1:])[0])


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)


def embedding_loss(table: Any, tokens: Any, w: Any) -> Any:
    return jnp.mean(jnp.tanh(table[tokens].mean(1) @ w) ** 2)


def jacobi(x: Any, source: Any) -> Any:
    """Return the result of 50 Jacobi sweeps for Poisson's equation."""

    def sweep(_: Any, u: Any) -> Any:
        around = sum(jnp.roll(u, by, axis) for by in (-1, 1) for axis in (0, 1))
        return 0.25 * (around + source)

    return lax.fori_loop(0, 50, sweep, x)


def k_means(points: Any, centres: Any) -> Any:
    nearest = jnp.argmin(jnp.sum((points[:, None] - centres[None]) ** 2, -1), 1)
    chosen = jax.nn.one_hot(nearest, centres.shape[0], dtype=points.dtype)
    return (chosen.T @ points) / (chosen.sum(0)[:, None] + 1e-6), nearest


def gaussian_process(x: Any, y: Any) -> Any:
    kernel = jnp.exp(-0.5 * jnp.sum((x[:, None] - x[None]) ** 2, -1)) + 0.1 * jnp.eye(x.shape[0], dtype=x.dtype)
    low = jnp.linalg.cholesky(kernel)
    solved = jax.scipy.linalg.cho_solve((low, True), y)
    return 0.5 * y @ solved + jnp.sum(jnp.log(jnp.diag(low)))


def black_scholes(spot: Any, strike: Any, years: Any) -> Any:
    d = (jnp.log(spot / strike) + 0.145 * years) / (0.5 * jnp.sqrt(years))
    call = spot * jax.scipy.stats.norm.cdf(d)
    return call - strike * jnp.exp(-0.02 * years) * jax.scipy.stats.norm.cdf(d - 0.5 * jnp.sqrt(years))


def special(x: Any) -> Any:
    return lax.lgamma(jnp.abs(x) + 1) + lax.erf(x) * jnp.arctan2(x, 2.0) + jnp.cbrt(x) + jnp.log1p(jnp.abs(x))


def trigonometric(x: Any) -> Any:
    return jnp.sin(x) * jnp.cos(x / 3) + jnp.exp(-x * x) * jnp.log(jnp.abs(x) + 1) + jnp.sqrt(jnp.abs(x)) ** 1.5


def haversine(a: Any, b: Any) -> Any:
    dx, dy = a[:, None, 0] - b[None, :, 0], a[:, None, 1] - b[None, :, 1]
    h = jnp.sin(dx / 2) ** 2 + jnp.cos(a[:, None, 0]) * jnp.cos(b[None, :, 0]) * jnp.sin(dy / 2) ** 2
    return 2 * jnp.arcsin(jnp.sqrt(jnp.clip(h, 0.0, 1.0)))


def chunked_softmax(x: Any) -> Any:
    return jax.nn.softmax(x) + jnp.tanh(x)


_TOKENS = np.random.default_rng(0).integers(0, 1000, (32, 16), np.int32)
_LABELS = np.random.default_rng(1).integers(0, 1000, 256, np.int32)
_GRADIENT = jax.grad(mlp_loss)

PROGRAMS = (
    Program("selective_scan", "state-space models", selective_scan),
    Program("linear_recurrence", "discounted sums", linear_recurrence),
    Program("block_quantisation", "quantised nets", of(block_quantisation, normal(0, 50, 8, 32))),
    Program("total_variation_gradient", "images", of(jax.grad(total_variation), normal(0, 60, 64, 64))),
    Program("unrolled_scan", "recurrent nets", unrolled_scan),
    Program("sinkhorn", "optimal transport", sinkhorn),
    Program("many_arrays", "lists of arrays", many_arrays),
    Program("adam", "optimizers", of(adam, tensors(0), tensors(10), tensors(20), tensors(30, positive=True))),
    Program("mlp_gradient", "nets", of(_GRADIENT, tensors(0), normal(50, 128, 256), uniform(1, 0, 0.1, 128, 10))),
    Program("lorenz", "differential equations", of(runge_kutta, normal(0, 3, 1000))),
    Program("markov_forward", "hidden Markov models", of(markov_forward, normal(0, 32, 32), normal(1, 100, 32))),
    Program("layer_norm", "nets", of(layer_norm, normal(0, 512, 256), normal(1, 256), normal(2, 256))),
    Program("causal_attention", "transformers", of(attention, *(normal(k, 2, 4, 64, 64) for k in range(3)))),
    Program(
        "embedding_gradient", "tables", of(jax.grad(embedding_loss), normal(0, 1000, 32), _TOKENS, normal(1, 32, 8))
    ),
    Program("jacobi", "differential equations", of(jacobi, normal(0, 128, 128), normal(1, 128, 128))),
    Program("k_means", "clusters", of(k_means, normal(0, 1000, 8), normal(1, 16, 8))),
    Program("gaussian_process", "statistics", of(gaussian_process, normal(0, 64, 3), normal(1, 64))),
    Program("log_sum_exp", "statistics", of(functools.partial(jax.nn.logsumexp, axis=-1), normal(0, 2048, 1024))),
    Program("sorted_rows", "order", of(lambda x: jnp.sort(x, -1)[:, ::-1] * 2 + 1, normal(0, 100, 100))),
    Program("running_sum", "order", of(lambda x: jnp.cumsum(jnp.tanh(x), 0) / 3, normal(0, 512, 64))),
    Program("top_values", "order", of(lambda x: lax.top_k(jax.nn.softmax(x), 8), normal(0, 64, 1000))),
    Program(
        "one_hot_loss",
        "losses",
        of(
            lambda x, y: -jnp.mean(jnp.sum(jax.nn.one_hot(y, 1000, dtype=x.dtype) * jax.nn.log_softmax(x), -1)),
            normal(0, 256, 1000),
            _LABELS,
        ),
    ),
    Program("standardised", "statistics", of(lambda x: (x - x.mean(0)) / (x.std(0) + 1e-6), normal(0, 1000, 32))),
    Program("covariance", "statistics", of(lambda x: jnp.cov(x.T), normal(0, 1000, 16))),
    Program(
        "pooled",
        "images",
        of(
            lambda x: lax.reduce_window(jax.nn.relu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
            normal(0, 4, 64, 64, 8),
        ),
    ),
    Program(
        "bincount", "counts", of(lambda x, i: jnp.zeros(1000, x.dtype).at[i].add(jnp.exp(x)), normal(0, 256), _LABELS)
    ),
    Program("softmax_tanh_f64", "doubles", of(chunked_softmax, normal(0, 500, 500)), doubles=True),
    Program("special_f64", "doubles", of(special, normal(0, 20_000)), doubles=True),
    Program("trigonometric_f64", "doubles", of(trigonometric, normal(0, 100_000)), doubles=True),
    Program(
        "black_scholes_f64",
        "doubles",
        of(black_scholes, uniform(0, 50, 150, 20_000), uniform(1, 50, 150, 20_000), uniform(2, 0.1, 2, 20_000)),
        doubles=True,
    ),
    Program(
        "haversine_f64", "doubles", of(haversine, uniform(0, -1, 1, 200, 2), uniform(1, -1, 1, 300, 2)), doubles=True
    ),
    Program("lorenz_f64", "doubles", of(runge_kutta, normal(0, 3, 1000)), doubles=True),
    Program("markov_forward_f64", "doubles", of(markov_forward, normal(0, 32, 32), normal(1, 100, 32)), doubles=True),
)
