"""Programs with attention and the like, written as people write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

B, T, H, D = 2, 48, 4, 16


class Program(NamedTuple):
    """A function, and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def heads(*lengths: int, heads: int = H, size: int = D, dtype: Any = np.float32) -> tuple[Any, ...]:
    """Queries, keys and values, of one length or of two."""
    first, second = lengths if len(lengths) == 2 else lengths * 2
    sizes = (first, second, second)
    return tuple(normal(k, B, n, heads, size, dtype=dtype) for k, n in enumerate(sizes))


def attention(
    q: Any,
    k: Any,
    v: Any,
    bias: Any = None,
    *,
    mask: Any = None,
    fill: float = -np.inf,
    cap: float = 0.0,
    keep: Any = None,
) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if cap:
        scores = cap * jnp.tanh(scores / cap)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        i, j = jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[1])[None]
        scores = jnp.where(mask(i, j), scores, fill)
    weights = jax.nn.softmax(scores, -1)
    if keep is not None:
        weights = jnp.where(keep, weights / 0.9, 0.0)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def with_dropout(q: Any, k: Any, v: Any, keep: Any) -> Any:
    return attention(q, k, v, mask=causal, keep=keep)


def causal(i: Any, j: Any) -> Any:
    return j <= i


def window(i: Any, j: Any) -> Any:
    return (j <= i) & (j > i - 20)


def dilated(i: Any, j: Any) -> Any:
    return (i - j) % 3 == 0


def nowhere(i: Any, j: Any) -> Any:
    return j > i + 10_000


def some_rows_nowhere(i: Any, j: Any) -> Any:
    return (j <= i) & (i % 2 == 0)


def with_logsumexp(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    scores = jnp.where(causal(jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[1])[None]), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v), jax.nn.logsumexp(scores, -1)


def alibi(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125
    distance = jnp.abs(jnp.arange(q.shape[1])[:, None] - jnp.arange(k.shape[1])[None])
    scores = scores - 2.0 ** -jnp.arange(1, q.shape[2] + 1)[:, None, None] * distance
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def segments(q: Any, k: Any, v: Any, segment: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125
    scores = jnp.where(segment[:, None, :, None] == segment[:, None, None, :], scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def heads_first(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.3) @ v


def one_head(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T * 0.1) @ v


def by_hand(q: Any, k: Any, v: Any) -> Any:
    """The division after the product, and the statistics returned."""
    scores = q @ k.T * 0.1
    top = scores.max(-1, keepdims=True)
    weights = jnp.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    return (weights @ v) / total, (top + jnp.log(total))[:, 0]


def without_maximum(q: Any, k: Any, v: Any) -> Any:
    weights = jnp.exp(q @ k.T * 0.1)
    return weights @ v / weights.sum(-1, keepdims=True)


def temperature(q: Any, k: Any, v: Any, t: Any) -> Any:
    return jax.nn.softmax((q @ k.T) / t) @ v


def over_queries(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T * 0.1, axis=0).T @ v


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    return jnp.einsum("bhqk,bkhd->bqhd", scores / scores.sum(-1, keepdims=True), v)


def sinkhorn_step(q: Any, k: Any, g: Any) -> Any:
    """The log-sum-exp of a product alone, with weights."""
    scores = q @ k.T + g
    top = jax.lax.stop_gradient(scores.max(1, keepdims=True))
    return top[:, 0] + jnp.log(jnp.exp(scores - top).sum(1)), jnp.exp(scores - top) @ k


def kernel(x: Any, y: Any, amplitude: Any) -> Any:
    """A Gaussian process's, of all pairs of points."""
    squares = jnp.sum(x**2, 1)[:, None] + jnp.sum(y**2, 1)[None] - 2 * x @ y.T
    return jnp.exp(2 * amplitude) * jnp.exp(-0.5 * jnp.maximum(squares, 0.0))


def times_vector(x: Any, y: Any, w: Any, amplitude: Any) -> Any:
    return kernel(x, y, amplitude) @ w


def times_both(x: Any, y: Any, w: Any, amplitude: Any) -> Any:
    """Times a matrix, and the norm of what a weighted sum over the pairs of a point is."""
    pairs = kernel(x, y, amplitude)
    return pairs @ w, jnp.sum(pairs * pairs, 1)


def kernel_gradient(x: Any, y: Any, w: Any, amplitude: Any) -> Any:
    return jax.grad(lambda *a: jnp.sum(jnp.tanh(times_vector(*a))), (0, 2, 3))(x, y, w, amplitude)


def rectified(x: Any, y: Any, w: Any, scale: Any) -> Any:
    """A mask of products, by an exponential that is one number."""
    scores = x @ y.T
    return (jnp.where(scores > 0, scores, 0.0) * jnp.exp(scale)) @ w


def dot_product_attention(q: Any, k: Any, v: Any, bias: Any = None, **options: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, bias, **options)


_SEGMENTS = np.repeat(np.arange(4), T // 4)[None].repeat(B, 0).astype(np.int32)
_GROUPED = (*heads(T)[:1], *(normal(k, B, T, 2, D) for k in (5, 6)))
_BF16 = tuple(np.asarray(x).astype(jnp.bfloat16) for x in _GROUPED)

_POINTS = normal(0, 48, 3), normal(1, 80, 3)
PROGRAMS: dict[str, Program] = {
    "full": Program(attention, heads(T)),
    "causal": Program(partial(attention, mask=causal), heads(T)),
    "causal, finite fill": Program(partial(attention, mask=causal, fill=-1e9), heads(T)),
    "window": Program(partial(attention, mask=window), heads(T)),
    "dilated": Program(partial(attention, mask=dilated), heads(T)),
    "rows masked whole": Program(partial(attention, mask=some_rows_nowhere), heads(T)),
    "rows masked whole, finite": Program(partial(attention, mask=some_rows_nowhere, fill=-1e30), heads(T)),
    "all masked": Program(partial(attention, mask=nowhere), heads(T)),
    "soft cap": Program(partial(attention, mask=causal, cap=30.0), heads(T)),
    "bias": Program(attention, (*heads(T), normal(7, H, T, T))),
    "bias of keys": Program(attention, (*heads(T), normal(7, B, 1, 1, T))),
    "dropout": Program(with_dropout, (*heads(T), normal(8, B, H, T, T) > 0)),
    "log-sum-exp": Program(with_logsumexp, heads(T)),
    "ALiBi": Program(alibi, heads(T)),
    "segments": Program(segments, (*heads(T), _SEGMENTS)),
    "cross": Program(attention, heads(32, 80)),
    "any lengths": Program(partial(attention, mask=causal), heads(53, 101)),
    "any lengths, with bias": Program(attention, (*heads(53, 101), normal(7, H, 53, 101))),
    "any lengths, over queries": Program(over_queries, (normal(0, 67, 16), normal(1, 98, 16), normal(2, 67, 24))),
    "any lengths, linear": Program(linear_attention, heads(53, 83)),
    "one key head": Program(dot_product_attention, (heads(T)[0], *(normal(k, B, T, 1, D) for k in (5, 6)))),
    "heads first": Program(heads_first, tuple(normal(k, B, H, T, D) for k in range(3))),
    "jax.nn": Program(dot_product_attention, heads(T)),
    "jax.nn, causal": Program(partial(dot_product_attention, is_causal=True), heads(T)),
    "jax.nn, grouped heads": Program(partial(dot_product_attention, is_causal=True), _GROUPED),
    "jax.nn, bf16": Program(partial(dot_product_attention, is_causal=True), _BF16),
    "jax.nn, bias": Program(dot_product_attention, (*heads(T), normal(7, B, H, T, T))),
    "one head": Program(one_head, (normal(0, 48, 16), normal(1, 80, 16), normal(2, 80, 24))),
    "by hand": Program(by_hand, (normal(0, 48, 16), normal(1, 80, 16), normal(2, 80, 24))),
    "without a maximum": Program(without_maximum, (normal(0, 48, 16), normal(1, 80, 16), normal(2, 80, 24))),
    "temperature": Program(temperature, (normal(0, 48, 16), normal(1, 80, 16), normal(2, 80, 24), np.float32(3))),
    "over queries": Program(over_queries, (normal(0, 48, 16), normal(1, 80, 16), normal(2, 48, 24))),
    "linear": Program(linear_attention, heads(T)),
    "kernel times a vector": Program(times_vector, (*_POINTS, normal(2, 80), np.float32(0.3))),
    "kernel times a matrix": Program(times_both, (*_POINTS, normal(2, 80, 24), np.float32(0.3))),
    "kernel's gradient": Program(kernel_gradient, (*_POINTS, normal(2, 80), np.float32(0.3))),
    "rectified products": Program(rectified, (*_POINTS, normal(2, 80), np.float32(0.3))),
    "Sinkhorn": Program(sinkhorn_step, (normal(0, 48, 16), normal(1, 80, 16), normal(2, 80))),
}
