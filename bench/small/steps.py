"""Loops whose steps sort, add up along arrays, draw random numbers, multiply with vectors, or use places from data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench.small.made import Made, Program, normal


def _places(seed: int, high: int, *dims: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, dims).astype(np.int32)


def _uniform(key: Any, *dims: int, dtype: Any) -> Any:
    """Return the same numbers in either type: 24 random bits are exact in both."""
    return (jax.random.bits(key, dims, jnp.uint32) >> 8).astype(dtype) / 2**24


def exchanges(size: int = 1000, width: int | None = None) -> Made:
    """Return a shuffle: elements, or rows, change places."""

    def run(x: Any, places: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            one, other = x[k], x[places[k]]
            return x.at[k].set(other).at[places[k]].set(one)

        return lax.fori_loop(0, x.shape[0], step, x)

    return run, (normal(0, size, *([] if width is None else [width])), _places(1, size, size))


def ratings(players: int = 100, games: int = 2000) -> Made:
    """Return Elo's ratings: each game changes those of two players."""

    def run(start: Any, played: Any) -> Any:
        def step(rating: Any, game: Any) -> Any:
            winner, loser = game
            won = 0.1 * (1 - jax.nn.sigmoid(rating[winner] - rating[loser]))
            return rating.at[winner].add(won).at[loser].add(-won), won

        return lax.scan(step, start, played)

    return run, (normal(0, players) * 0.1, _places(1, players, games, 2))


def _repeated(function: Callable[[Any], Any], *dims: int, steps: int = 100) -> Made:
    return lambda x: lax.fori_loop(0, steps, lambda _, y: x + 0.01 * function(y), x), (normal(0, *dims),)


def drawdowns(days: int = 100, assets: int = 16) -> Made:
    """Return how far values are below their highest so far, at worst, of paths that are drawn from returns."""

    def run(returns: Any) -> Any:
        def step(value: Any, change: Any) -> Any:
            path = jnp.cumsum(value + change, -1)
            return value * 0.99 + change * 0.01, (lax.cummax(path, 1) - path).max(-1)

        return lax.scan(step, returns[0], returns)[1]

    return run, (normal(0, days, assets, 64) * 0.01,)


def flock(birds: int = 200, steps: int = 20) -> Made:
    """Return birds that follow their neighbours."""

    def run(places: Any, speeds: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            p, v = carry
            apart = p[:, None] - p[None]
            squares = (apart**2).sum(-1) + 1e-2
            near = jnp.exp(-squares)
            push = (apart / squares[..., None] * near[..., None]).sum(1)
            v = v + 0.001 * push + 0.05 * (near @ v / near.sum(1, keepdims=True) - v)
            return (p + 0.01 * v, v), None

        return lax.scan(step, (places, speeds), None, length=steps)[0]

    return run, (normal(0, birds, 2), normal(1, birds, 2))


def walks(count: int = 128, dims: int = 10, steps: int = 50) -> Made:
    """Return the distances of random walkers in several dimensions."""

    def run(start: Any, key: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            x, key = carry
            key, own = jax.random.split(key)
            x = x + _uniform(own, *x.shape, dtype=x.dtype) - 0.5
            return (x, key), jnp.sqrt((x * x).sum(-1)).mean()

        return lax.scan(step, (start, key), None, length=steps)[1]

    return run, (normal(0, count, dims), np.array([0, 7], np.uint32))


def langevin(size: int = 400, steps: int = 100) -> Made:
    """Return samples by noisy steps down a gradient."""

    def run(start: Any, key: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            x, key = carry
            key, own = jax.random.split(key)
            x = x - 0.05 * (x + jnp.sin(x)) + 0.1 * (_uniform(own, *x.shape, dtype=x.dtype) - 0.5)
            return (x, key), (x * x).mean()

        return lax.scan(step, (start, key), None, length=steps)[1]

    return run, (normal(0, size), np.array([0, 3], np.uint32))


def fista(rows: int = 100, columns: int = 60, steps: int = 100) -> Made:
    """Return sparse least squares by accelerated steps: each multiplies with a matrix and with its transpose."""

    def run(a: Any, b: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            x, y = carry
            z = y - 0.003 * (a.T @ (a @ y - b))
            new = jnp.sign(z) * jnp.maximum(jnp.abs(z) - 0.01, 0)
            return (new, new + 0.7 * (new - x)), None

        start = jnp.zeros(columns, a.dtype)
        return lax.scan(step, (start, start), None, length=steps)[0][0]

    return run, (normal(0, rows, columns), normal(1, rows))


def spikes(neurons: int = 100, steps: int = 200) -> Made:
    """Return the potentials of leaky neurons that fire at each other."""

    def run(weights: Any, inputs: Any) -> Any:
        def step(carry: Any, now: Any) -> Any:
            v, fired = carry
            v = v * 0.9 * (1 - fired) + now + fired @ weights
            return (v, (v > 1).astype(v.dtype)), v

        start = jnp.zeros(neurons, weights.dtype)
        return lax.scan(step, (start, start), inputs)[1]

    return run, (normal(0, neurons, neurons) * 0.1, np.abs(normal(1, steps, neurons)))


def knapsack(items: int = 60, room: int = 500) -> Made:
    """Return the best value of each weight: an array that is shifted by data in each step."""

    def run(weights: Any, values: Any) -> Any:
        def step(best: Any, item: Any) -> Any:
            weight, value = item
            taken = jnp.where(jnp.arange(room) >= weight, jnp.roll(best, weight) + value, -1)
            return jnp.maximum(best, taken), None

        return lax.scan(step, jnp.zeros(room, values.dtype), (weights, values))[0]

    return run, (_places(0, 50, items), np.abs(normal(1, items)))


PROGRAMS = (
    Program("exchanges", "shuffles", exchanges),
    Program("exchanged_rows", "shuffles", lambda: exchanges(200, 16)),
    Program("ratings", "rankings", ratings),
    Program("sorted_rows_in_loop", "order", lambda: _repeated(lambda x: jnp.sort(x, -1), 16, 16)),
    Program("sorted_pairs_in_loop", "order", lambda: _repeated(lambda x: x[jnp.argsort(jnp.cos(x))], 32)),
    Program(
        "medians_in_loop", "robust statistics", lambda: _repeated(lambda x: x - jnp.median(x, -1, keepdims=True), 8, 33)
    ),
    Program("sums_in_loop", "order", lambda: _repeated(lambda x: jnp.cumsum(jnp.tanh(x), -1), 32, 64)),
    Program("drawdowns", "finance", drawdowns),
    Program("flock", "agents", flock),
    Program("walks", "Monte Carlo", walks),
    Program("langevin", "Monte Carlo", langevin),
    Program("fista", "sparse regression", fista),
    Program("spikes", "neurons", spikes),
    Program("knapsack", "dynamic programming", knapsack),
)
