"""Models, losses and random numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tests.replay.programs.registry import KEY, X, cross_entropy, integers, layer_norm, normal, program


@program(X)
def softmaxes(x: Any) -> Any:
    return jax.nn.softmax(x), jax.nn.log_softmax(x, 0), jax.nn.logsumexp(x)


@program(X, normal(53), normal(53), normal(37, 53, seed=3))
def layer_norm_gradient(x: Any, g: Any, b: Any, dy: Any) -> Any:
    y, vjp = jax.vjp(layer_norm, x, g, b)
    return y, vjp(dy)


@program(X.astype(ml_dtypes.bfloat16), normal(53, dtype=ml_dtypes.bfloat16), normal(53, dtype=ml_dtypes.bfloat16))
def layer_norm_bf16(x: Any, g: Any, b: Any) -> Any:
    return jax.value_and_grad(lambda x: layer_norm(x, g, b).sum(dtype=jnp.float32))(x)


@program(X, integers(37, high=53))
def cross_entropy_gradient(x: Any, y: Any) -> Any:
    return jax.value_and_grad(cross_entropy)(x, y)


@program(X, integers(37, low=-60, high=60))
def cross_entropy_gradient_with_labels_out_of_range(x: Any, y: Any) -> Any:
    return jax.grad(cross_entropy)(x, y)


@program(normal(4, 9, 9, 6), normal(6), normal(6))
def batch_norm_gradient(x: Any, g: Any, b: Any) -> Any:
    def f(x: Any, g: Any, b: Any) -> Any:
        m, v = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return ((((x - m) * lax.rsqrt(v + 1e-5)) * g + b) ** 3).sum()

    return jax.grad(f, (0, 1, 2))(x, g, b)


@program(X, normal(53, 64), normal(64, 53))
def mlp_gradient(x: Any, w: Any, v: Any) -> Any:
    return jax.value_and_grad(lambda w, v: (jax.nn.gelu(x @ w) @ v).mean(), (0, 1))(w, v)


@program(normal(2, 12, 3, 8), normal(2, 12, 3, 8, seed=1), normal(2, 12, 3, 8, seed=2))
def attention_gradient(q: Any, k: Any, v: Any) -> Any:
    def f(q: Any, k: Any, v: Any) -> Any:
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 3
        s = jnp.where(jnp.tril(jnp.ones((12, 12), bool)), s, -1e9)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v)

    y, vjp = jax.vjp(f, q, k, v)
    return vjp(y)


@program(tuple(normal(7, n, seed=n) for n in (3, 5, 8)), tuple(normal(7, n, seed=n + 1) for n in (3, 5, 8)))
def adam(params: Any, grads: Any) -> Any:
    def update(p: Any, g: Any) -> Any:
        m, v = 0.1 * g, 0.001 * g * g
        return p - 1e-3 * (m / 0.1 / (jnp.sqrt(v / 0.001) + 1e-8) + 0.01 * p), m, v

    norm = jnp.sqrt(sum((g**2).sum() for g in grads))
    return jax.tree.map(lambda p, g: update(p, g / jnp.maximum(norm, 1)), params, grads)


@program(KEY, X)
def dropout(key: Any, x: Any) -> Any:
    return jnp.where(jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape), x / 0.9, 0)


@program(KEY)
def random_numbers(key: Any) -> Any:
    a, b, c, d, e = jax.random.split(jax.random.wrap_key_data(key), 5)
    return (
        jax.random.normal(a, (33,)),
        jax.random.uniform(b, (5, 7), jnp.float16),
        jax.random.randint(c, (9,), -5, 99),
        jax.random.permutation(d, 17),
        jax.random.categorical(e, jnp.zeros((3, 4))),
    )


@program(KEY, exact=True)
def random_bits(key: Any) -> Any:
    key = jax.random.wrap_key_data(key)
    return [jax.random.bits(jax.random.fold_in(key, 7), (11,), d) for d in (np.uint8, np.uint16, np.uint32)]


@program(np.arange(4, dtype=np.uint32), exact=True)
def random_bit_generators(key: Any) -> Any:
    return (
        lax.rng_bit_generator(key, (6, 3), algorithm=lax.RandomAlgorithm.RNG_PHILOX),
        lax.rng_bit_generator(key, (6, 3), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY),
        lax.rng_bit_generator(key, (5,), np.uint8, algorithm=lax.RandomAlgorithm.RNG_PHILOX),
    )


@program(KEY)
def random_gamma(key: Any) -> Any:
    return jax.random.gamma(jax.random.wrap_key_data(key), jnp.array([0.3, 1.5, 7.0]))
