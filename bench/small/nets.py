"""Small nets and what trains them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.small.made import Made, Program, normal

Cell = Callable[[Any, Any, Any], Any]


def _gru(weights: Any, h: Any, x: Any) -> Any:
    w, u, b = weights
    a, c = x @ w + b, h @ u
    n = h.shape[-1]
    r, z = jax.nn.sigmoid(a[:, :n] + c[:, :n]), jax.nn.sigmoid(a[:, n : 2 * n] + c[:, n : 2 * n])
    return (1 - z) * jnp.tanh(a[:, 2 * n :] + r * c[:, 2 * n :]) + z * h


def _lstm(weights: Any, carry: Any, x: Any) -> Any:
    w, u, b = weights
    h, c = carry
    i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def recurrent(kind: str, hidden: int, batch: int, steps: int, gradient: bool) -> Made:
    """A recurrent net over a sequence: its last state, or the gradient of a loss of it."""
    gates, inputs = (3, 16) if kind == "gru" else (4, 16)

    def loss(weights: Any, xs: Any) -> Any:
        zero = jnp.zeros((batch, hidden), xs.dtype)
        if kind == "gru":
            last = jax.lax.scan(lambda h, x: (_gru(weights, h, x), None), zero, xs)[0]
        else:
            last = jax.lax.scan(lambda carry, x: (_lstm(weights, carry, x), None), (zero, zero), xs)[0][0]
        return jnp.mean(last**2)

    shape = gates * hidden
    weights = normal(0, inputs, shape, scale=0.2), normal(1, hidden, shape, scale=hidden**-0.5), np.zeros(shape)
    return (jax.grad(loss) if gradient else loss), (weights, normal(2, steps, batch, inputs))


def mlp_step(batch: int = 32, width: int = 64) -> Made:
    """A step of gradient descent of a net with two hidden layers."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = jnp.tanh(x @ w + b)
        w, b = params[-1]
        return jnp.mean((x @ w + b - y) ** 2)

    def step(params: Any, x: Any, y: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, slopes), value

    sizes = ((8, width), (width, width), (width, 1))
    params = [(normal(k, a, b, scale=a**-0.5), np.zeros(b)) for k, (a, b) in enumerate(sizes)]
    return step, (params, normal(8, batch, 8), normal(9, batch, 1))


def perceptron(points: int = 100, features: int = 10) -> Made:
    """Ten rounds of the perceptron's rule, one point after the other."""

    def train(x: Any, y: Any) -> Any:
        def see(w: Any, point: Any) -> Any:
            x, y = point
            wrong = y * (w[:-1] @ x + w[-1]) <= 0
            change = jnp.append(x, 1.0) * y
            return jnp.where(wrong, w + change, w), wrong

        def turn(w: Any, _: Any) -> Any:
            w, wrong = jax.lax.scan(see, w, (x, y))
            return w, wrong.sum()

        return jax.lax.scan(turn, jnp.zeros(features + 1, x.dtype), None, length=10)

    return train, (normal(0, points, features), np.sign(normal(1, points)))


def group_norm_gradient(size: int = 16, channels: int = 32, groups: int = 8) -> Made:
    """The gradient of GroupNorm of a small image."""

    def loss(x: Any, scale: Any, bias: Any) -> Any:
        g = x.reshape(*x.shape[:3], groups, -1)
        mean = g.mean((1, 2, 4), keepdims=True)
        var = ((g - mean) ** 2).mean((1, 2, 4), keepdims=True)
        y = ((g - mean) * jax.lax.rsqrt(var + 1e-5)).reshape(x.shape) * scale + bias
        return jnp.sum(jax.nn.silu(y) ** 2)

    made = normal(0, 1, size, size, channels), normal(1, channels), normal(2, channels)
    return jax.grad(loss, (0, 1, 2)), made


def residual_gradient(size: int = 8, channels: int = 16) -> Made:
    """The gradient of a block of two convolutions with a way around them."""

    def loss(weights: Any, x: Any) -> Any:
        y = x
        for w, scale in weights:
            y = jax.lax.conv_general_dilated(y, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            mean = y.mean((0, 1, 2))
            y = jax.nn.relu((y - mean) * jax.lax.rsqrt(((y - mean) ** 2).mean((0, 1, 2)) + 1e-5) * scale)
        return jnp.mean((x + y) ** 2)

    weights = [(normal(k, 3, 3, channels, channels, scale=0.1), np.ones(channels)) for k in range(2)]
    return jax.grad(loss), (weights, normal(8, 4, size, size, channels))


def softmax_first(rows: int = 256, columns: int = 64) -> Made:
    """Softmax along the first axis."""
    return (lambda x: jax.nn.softmax(x, 0)), (normal(0, rows, columns),)


def attention(heads: int = 4, length: int = 16, width: int = 32) -> Made:
    """Attention of a short sequence, with its projections."""

    def run(x: Any, weights: Any) -> Any:
        q, k, v = (jnp.einsum("ld,dhe->hle", x, w) for w in weights[:3])
        scores = jnp.einsum("hle,hme->hlm", q, k) / jnp.sqrt(jnp.asarray(width, x.dtype))
        return jnp.einsum("hlm,hme,hed->ld", jax.nn.softmax(scores, -1), v, weights[3])

    whole = heads * width
    weights = [normal(k, whole, heads, width, scale=0.1) for k in range(3)]
    return run, (normal(8, length, whole), (*weights, normal(4, heads, width, whole, scale=0.1)))


def _tree() -> tuple[Any, Any]:
    shapes = ((8, 32), (32,), (32, 32), (32,), (32, 4), (4,))
    return [normal(k, *s) for k, s in enumerate(shapes)], [normal(10 + k, *s) for k, s in enumerate(shapes)]


def adafactor() -> Made:
    """A step of Adafactor for a small net."""

    def step(params: Any, slopes: Any, state: Any) -> Any:
        changed: list[Any] = []
        seen: list[Any] = []
        for p, g, s in zip(params, slopes, state, strict=True):
            square = g * g + 1e-30
            if g.ndim == 2:
                r, c = 0.99 * s[0] + 0.01 * square.mean(1), 0.99 * s[1] + 0.01 * square.mean(0)
                update = g * jax.lax.rsqrt(r / r.mean())[:, None] * jax.lax.rsqrt(c)[None, :]
                seen.append((r, c))
            else:
                v = 0.99 * s[0] + 0.01 * square
                update = g * jax.lax.rsqrt(v)
                seen.append((v,))
            update = update / jnp.maximum(1.0, jnp.sqrt(jnp.mean(update**2)))
            changed.append(p - 0.01 * jnp.maximum(1e-3, jnp.sqrt(jnp.mean(p**2))) * update)
        return changed, seen

    params, slopes = _tree()
    state = [(np.ones(p.shape[0]), np.ones(p.shape[1])) if p.ndim == 2 else (np.ones(p.shape),) for p in params]
    return step, (params, slopes, state)


def lamb() -> Made:
    """A step of LAMB for a small net."""

    def step(params: Any, slopes: Any, first: Any, second: Any) -> Any:
        found = []
        for p, g, m, v in zip(params, slopes, first, second, strict=True):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            update = m / 0.1 / (jnp.sqrt(v / 0.001) + 1e-6) + 0.01 * p
            lengths = jnp.sqrt(jnp.sum(p * p)), jnp.sqrt(jnp.sum(update * update))
            trust = jnp.where((lengths[0] > 0) & (lengths[1] > 0), lengths[0] / lengths[1], 1.0)
            found.append((p - 0.01 * trust * update, m, v))
        return found

    params, slopes = _tree()
    zeros = [np.zeros(p.shape) for p in params]
    return step, (params, slopes, zeros, [z.copy() for z in zeros])


def _recurrent() -> Iterator[Program]:
    """Cells and their gradients at small and large sizes, for one sequence and for batches."""
    sizes = [(hidden, batch) for hidden in (32, 128) for batch in (1, 8, 64)]
    ways = [(kind, gradient) for kind in ("gru", "lstm") for gradient in (False, True)]
    for (kind, gradient), (hidden, batch) in [(way, size) for way in ways for size in sizes]:
        name = f"{kind}_{hidden}_batch_{batch}" + ("_gradient" if gradient else "")
        yield Program(name, "recurrent nets", functools.partial(recurrent, kind, hidden, batch, 32, gradient))


RECURRENT = tuple(_recurrent())
"""Timed only where they are asked for by name: many of one kind would outweigh the others in a mean."""

PROGRAMS = (
    Program("gru_32", "recurrent nets", functools.partial(recurrent, "gru", 32, 8, 50, False)),
    Program("gru_128_gradient", "recurrent nets", functools.partial(recurrent, "gru", 128, 16, 20, True)),
    Program("lstm_32_gradient", "recurrent nets", functools.partial(recurrent, "lstm", 32, 8, 50, True)),
    Program("lstm_128", "recurrent nets", functools.partial(recurrent, "lstm", 128, 1, 50, False)),
    Program("mlp_step", "small nets", mlp_step),
    Program("perceptron", "small nets", perceptron),
    Program("group_norm_gradient", "small nets", group_norm_gradient),
    Program("residual_gradient", "small nets", residual_gradient),
    Program("softmax_first", "small nets", softmax_first),
    Program("attention", "small nets", attention),
    Program("adafactor", "optimizers", adafactor),
    Program("lamb", "optimizers", lamb),
)
