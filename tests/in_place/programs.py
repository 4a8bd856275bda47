"""Programs with donated arguments: in some an output can be written over one, in others that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclass(frozen=True)
class Program:
    """A function, the shapes of its arguments, and whether a kernel that is written over its first argument without a
    thought is wrong (on some device).
    """

    fun: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    naive_is_wrong: bool = False
    donated: tuple[int, ...] = (0,)
    dtype: Any = np.float32

    def args(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        if np.issubdtype(self.dtype, np.integer):
            return [rng.integers(0, 7, shape).astype(self.dtype) for shape in self.shapes]
        return [rng.standard_normal(shape).astype(self.dtype) for shape in self.shapes]


def layer_norm(x: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def adam(p: jax.Array, m: jax.Array, v: jax.Array, g: jax.Array) -> tuple[jax.Array, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.99 * jnp.abs(v) + 0.01 * g * g
    return p - 0.01 * m / (jnp.sqrt(v) + 1e-3), m, v


def computed_twice(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows too long to be kept: a later pass computes the first result once more, from what it overwrites."""
    y = 0.9 * x + 1
    return y, y / (1 + (y * y).sum(-1, keepdims=True))


def bias_step(bias: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The bias is read beside each element of its column, and overwritten with the column's sum."""
    y = jnp.tanh(x + bias)
    return bias - 0.1 * (y * (1 - y)).sum(0), y


def verlet(x: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, v = carry
        v = v * 0.99 - 0.05 * (2 * x - jnp.roll(x, 1, 1) - jnp.roll(x, -1, 1))
        return x + 0.1 * v, v

    return lax.fori_loop(0, 7, step, (x, v))


def shared_start(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two carries that begin as one array; the one is read at other places than it is written."""

    def step(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        a, b = carry
        return a * 0.5 + b[:, ::-1], b * 0.9 + a.sum(1, keepdims=True) * 0.01

    return lax.fori_loop(0, 5, step, (x, x))


def swapped(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        a, b = carry
        return jnp.tanh(b) + 0.1, jnp.sin(a) * 2

    return lax.fori_loop(0, 3, step, (x, y))


def training(w: jax.Array, count: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    value, grad = jax.value_and_grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)
    count = count + 1
    return w - 0.1 * grad / (1 - 0.9 ** count.astype(jnp.float32)[0]), count, value


ROWS = ((37, 33),)
PROGRAMS: dict[str, Program] = {
    "elementwise": Program(lambda x: jnp.tanh(x) * 2, ((1001,),)),
    "bytes": Program(lambda x: (x * 3 + 1).astype(jnp.int8), ((1003,),), dtype=np.int8),
    "half": Program(lambda x: jnp.tanh(x) * x, ((129, 7),), dtype=np.float16),
    "adam": Program(adam, ((517,),) * 4, donated=(0, 1, 2)),
    "average": Program(lambda a, p: 0.99 * a + 0.01 * p, ((64, 48), (64, 48))),
    "softmax": Program(lambda x: jax.nn.softmax(x, -1), ROWS),
    "long softmax": Program(lambda x: jax.nn.softmax(x, -1), ((3, 5003),)),
    "vector softmax": Program(lambda x: jax.nn.softmax(x, -1), ((16, 256),)),
    "column softmax": Program(lambda x: jax.nn.softmax(x, 0), ROWS),
    "layer norm": Program(layer_norm, ROWS),
    "standardise": Program(lambda x: (x - x.mean()) / (x.std() + 1e-3), ROWS),
    "computed twice": Program(computed_twice, ((2, 70_001),)),
    "bias": Program(bias_step, ((33,), (64, 33)), naive_is_wrong=True),
    "reversed": Program(lambda x: x + x[:, ::-1] * 2, ROWS, naive_is_wrong=True),
    "rolled": Program(lambda x: x + jnp.roll(x, 1, 1), ROWS, naive_is_wrong=True),
    "rolled rows": Program(lambda x: x - jnp.roll(x, 3, 0), ROWS, naive_is_wrong=True),
    "transposed": Program(lambda x: x + x.T, ((33, 33),), naive_is_wrong=True),
    "broadcast row": Program(lambda x: x - x[0], ROWS, naive_is_wrong=True),
    "broadcast column": Program(lambda x: x * x[:, 1:2], ROWS, naive_is_wrong=True),
    "softmax and neighbours": Program(
        lambda x: jax.nn.softmax(x, -1) + jnp.pad(x[:, 1:], ((0, 0), (0, 1))), ROWS, naive_is_wrong=True
    ),
    "cumulative": Program(lambda x: jnp.cumsum(x, 1), ROWS),
    "cumulative and others": Program(lambda x: jnp.cumsum(x, 1) + x[:, ::-1], ROWS, naive_is_wrong=True),
    "sorted": Program(lambda x: jnp.sort(x, 1) * 2, ROWS),
    "sorted and others": Program(lambda x: jnp.sort(x, 1) - x[:, :1], ROWS),
    "two outputs": Program(lambda x: (x + 1, jnp.exp(x)), ((515,),)),
    "returned": Program(lambda x: (jnp.sin(x) + 1, x), ((515,),)),
    "used after": Program(lambda x, w: (jnp.sin(x) + 1, x @ w), ((64, 32), (32, 64))),
    "updated slice": Program(lambda x: lax.dynamic_update_slice(x, x[2:9, 3:20] * 2, (4, 5)) + x, ROWS),
    "shifted into itself": Program(lambda x: lax.dynamic_update_slice(x, x[:, :-1] + 1, (0, 1)), ROWS),
    "picked": Program(lambda x, i: x + x[:, i.astype(jnp.int32) % 33], ((37, 33), (33,)), naive_is_wrong=True),
    "concatenated": Program(lambda x: jnp.concatenate([x[:, 16:], x[:, :16]], 1) * 2, ROWS, naive_is_wrong=True),
    "verlet": Program(verlet, ROWS * 2, donated=(0, 1)),
    "carries that begin as one": Program(shared_start, ROWS),
    "carries swapped": Program(swapped, ROWS * 2, donated=(0, 1)),
    "training": Program(training, ((32, 16), (1,), (64, 32)), donated=(0, 1)),
}
