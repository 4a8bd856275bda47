"""Loops that need a team of threads for each part: recurrent cells, models in training, iterations on matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

RNG = np.random.default_rng(0)


def normal(*shape: int, scale: float = 0.1) -> jax.Array:
    return jax.device_put(RNG.standard_normal(shape).astype(np.float32) * scale)


def whole(high: int, *shape: int) -> jax.Array:
    return jax.device_put(RNG.integers(0, high, shape).astype(np.int32))


def lstm(x: Any, h: Any, c: Any, wx: Any, wh: Any, b: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return jax.lax.scan(step, (h, c), x)


def lstm_arguments(batch: int, hidden: int, steps: int) -> tuple[Any, ...]:
    return (
        normal(steps, batch, hidden, scale=1.0),
        normal(batch, hidden),
        normal(batch, hidden),
        normal(hidden, 4 * hidden),
        normal(hidden, 4 * hidden),
        normal(4 * hidden),
    )


def gru(x: Any, h: Any, wx: Any, wh: Any, b: Any, bn: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        ar, az, an = jnp.split(x @ wx + b, 3, -1)
        ur, uz, un = jnp.split(h @ wh, 3, -1)
        r, z = jax.nn.sigmoid(ar + ur), jax.nn.sigmoid(az + uz)
        h = (1 - z) * jnp.tanh(an + r * (un + bn)) + z * h
        return h, h

    return jax.lax.scan(step, h, x)


def gru_arguments(batch: int, hidden: int, steps: int) -> tuple[Any, ...]:
    x, h = normal(steps, batch, hidden, scale=1.0), normal(batch, hidden)
    return x, h, normal(hidden, 3 * hidden), normal(hidden, 3 * hidden), normal(3 * hidden), normal(hidden)


def bidirectional(x: Any, wx: Any, wh: Any, vx: Any, vh: Any) -> Any:
    def cell(wx: Any, wh: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(x @ wx + h @ wh)
            return h, h

        return step

    h = jnp.zeros((x.shape[1], wh.shape[0]))
    forward = jax.lax.scan(cell(wx, wh), h, x)[1]
    backward = jax.lax.scan(cell(vx, vh), h, x, reverse=True)[1]
    return jnp.concatenate([forward, backward], -1)


def bidirectional_arguments(batch: int, hidden: int, steps: int) -> tuple[Any, ...]:
    return (normal(steps, batch, hidden, scale=1.0), *(normal(hidden, hidden) for _ in range(4)))


def lstm_gradient(x: Any, h: Any, c: Any, *parameters: Any) -> Any:
    def loss(parameters: Any) -> Any:
        (_, c_last), hs = lstm(x, h, c, *parameters)
        return (hs**2).mean() + c_last.sum() * 0.1

    return jax.grad(loss)(parameters)


def gru_gradient(x: Any, h: Any, *parameters: Any) -> Any:
    return jax.grad(lambda parameters: (gru(x, h, *parameters)[1] ** 2).mean())(parameters)


def bidirectional_gradient(x: Any, *parameters: Any) -> Any:
    return jax.grad(lambda parameters: (bidirectional(x, *parameters) ** 2).mean())(parameters)


def transposed_weights(x: Any, h: Any, w: Any) -> Any:
    """Weights as [N, K], and the batch as the last axis of the carry."""
    return jax.lax.scan(lambda h, x: (jnp.tanh(w @ h + x), h.sum(0)), h, x)


def exchanged(a: Any, b: Any, w: Any) -> Any:
    """Each carried value becomes the other: neither may be overwritten before both are read."""

    def step(carry: Any, _: Any) -> Any:
        a, b = carry
        return (b[:, ::-1] * 0.5, jnp.tanh(a @ w)), None

    return jax.lax.scan(step, (a, b), None, length=9)[0]


def half_precision(x: Any, h: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        return jnp.tanh(x + h @ w), None

    return jax.lax.scan(step, h.astype(jnp.bfloat16), x.astype(jnp.bfloat16))[0]


def logistic_regression(w: Any, b: Any, x: Any, y: Any) -> Any:
    def step(p: Any, batch: Any) -> Any:
        x, y = batch

        def loss(p: Any) -> Any:
            z = x @ p[0] + p[1]
            return jnp.mean(jnp.logaddexp(0, z) - y * z)

        value, g = jax.value_and_grad(loss)(p)
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), value

    return jax.lax.scan(step, (w, b), (x, y))


def logistic_regression_arguments(steps: int, batch: int, features: int) -> tuple[Any, ...]:
    y = (RNG.random((steps, batch)) < 0.5).astype(np.float32)
    return normal(features), jnp.float32(0), normal(steps, batch, features, scale=1.0), jnp.asarray(y)


def perceptron(p: Any, x: Any, y: Any) -> Any:
    def step(p: Any, batch: Any) -> Any:
        x, y = batch

        def loss(p: Any) -> Any:
            w1, b1, w2, b2 = p
            z = jnp.tanh(x @ w1 + b1) @ w2 + b2
            return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(z), -1))

        value, g = jax.value_and_grad(loss)(p)
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), value

    return jax.lax.scan(step, p, (x, y))


def perceptron_arguments(steps: int, batch: int, features: int, hidden: int, classes: int) -> tuple[Any, ...]:
    y = jax.nn.one_hot(RNG.integers(0, classes, (steps, batch)), classes)
    parameters = (normal(features, hidden), jnp.zeros(hidden), normal(hidden, classes), jnp.zeros(classes))
    return parameters, normal(steps, batch, features, scale=1.0), y


def word2vec(inside: Any, outside: Any, centre: Any, near: Any, far: Any) -> Any:
    """Skip-gram with negative samples: look-ups in two tables, and their gradients added back."""

    def step(tables: Any, batch: Any) -> Any:
        centre, near, far = batch

        def loss(tables: Any) -> Any:
            v, u, w = tables[0][centre], tables[1][near], tables[1][far]
            good = jax.nn.log_sigmoid(jnp.sum(v * u, -1))
            bad = jax.nn.log_sigmoid(-jnp.einsum("bd,bkd->bk", v, w)).sum(-1)
            return -(good + bad).mean()

        value, g = jax.value_and_grad(loss)(tables)
        return jax.tree.map(lambda t, g: t - 0.5 * g, tables, g), value

    return jax.lax.scan(step, (inside, outside), (centre, near, far))


def word2vec_arguments(steps: int, batch: int, words: int, size: int, samples: int) -> tuple[Any, ...]:
    tables = normal(words, size), normal(words, size)
    return *tables, whole(words, steps, batch), whole(words, steps, batch), whole(words, steps, batch, samples)


def sinkhorn(cost: Any, iterations: int = 50) -> Any:
    k, n = jnp.exp(-cost / 0.1), cost.shape[0]

    def step(uv: Any, _: Any) -> Any:
        u = 1.0 / n / (k @ uv[1])
        return (u, 1.0 / n / (k.T @ u)), None

    u = jnp.ones(n) / n
    (u, v), _ = jax.lax.scan(step, (u, u), None, length=iterations)
    return u[:, None] * k * v[None]


def sinkhorn_in_logarithms(cost: Any, iterations: int = 50) -> Any:
    n, lse = cost.shape[0], jax.scipy.special.logsumexp

    def step(fg: Any, _: Any) -> Any:
        f = -0.1 * (jnp.log(n) + lse((fg[1][None] - cost) / 0.1, 1))
        return (f, -0.1 * (jnp.log(n) + lse((f[:, None] - cost) / 0.1, 0))), None

    zeros = jnp.zeros(n)
    return jax.lax.scan(step, (zeros, zeros), None, length=iterations)[0]


def power_iteration(a: Any, v: Any) -> Any:
    def step(v: Any, _: Any) -> Any:
        w = a @ v
        return w / jnp.linalg.norm(w), None

    return jax.lax.scan(step, v, None, length=50)[0]


def viterbi(start: Any, move: Any, seen: Any) -> Any:
    """Scores and back pointers of the best paths."""

    def step(score: Any, seen: Any) -> Any:
        ways = score[:, :, None] + move[None]
        return ways.max(1) + seen, ways.argmax(1)

    return jax.lax.scan(step, start + seen[0], seen[1:])


def ctc(probabilities: Any, labels: Any) -> Any:
    """The forward recursion of connectionist temporal classification; blank is 0."""
    steps, batch, _ = probabilities.shape
    places = 2 * labels.shape[1] + 1
    extended = jnp.zeros((batch, places), jnp.int32).at[:, 1::2].set(labels)
    differs = (extended[:, 2:] != extended[:, :-2]) & (extended[:, 2:] != 0)
    skip = jnp.concatenate([jnp.zeros((batch, 2), bool), differs], 1)
    index = jnp.broadcast_to(extended[None], (steps, batch, places))
    seen = jnp.take_along_axis(probabilities, index, 2)
    low = -1e5

    def step(a: Any, seen: Any) -> Any:
        one = jnp.concatenate([jnp.full((batch, 1), low), a[:, :-1]], 1)
        two = jnp.where(skip, jnp.concatenate([jnp.full((batch, 2), low), a[:, :-2]], 1), low)
        m = jnp.maximum(jnp.maximum(a, one), two)
        return m + jnp.log(jnp.exp(a - m) + jnp.exp(one - m) + jnp.exp(two - m)) + seen, None

    a = jax.lax.scan(step, jnp.where(jnp.arange(places) < 2, seen[0], low), seen[1:])[0]
    return -jnp.logaddexp(a[:, -1], a[:, -2])


def ctc_arguments(steps: int, batch: int, symbols: int, labels: int) -> tuple[Any, ...]:
    return jax.nn.log_softmax(normal(steps, batch, symbols, scale=1.0)), 1 + whole(symbols - 1, batch, labels)


def long_sums(xs: jax.Array, w: jax.Array) -> Any:
    """Sums of many numbers and a product of as many steps, of a state that changes."""

    def step(h: Any, x: Any) -> Any:
        return jnp.tanh(h * 0.3 + x), (h.sum(), (h * x).sum(0), h @ w @ h)

    return jax.lax.scan(step, xs[0], xs)
