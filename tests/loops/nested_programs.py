"""Random loops in loops, with conditionals between."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

N = 7
TABLE = np.linspace(-1.0, 1.0, 5).astype(np.float32)
Step = Callable[[Any, Any], Any]
"""From a carried vector and a number that changes from step to step to the next vector."""


def program(seed: int) -> Callable[..., Any]:
    """A scan over random steps: [7] floats, a [7, 7] matrix, [steps] floats -> vectors, and stacked results."""
    rng = random.Random(seed)
    step, leaves = _step(rng, rng.randint(1, 3)), rng.random() < 0.5

    def run(c: Any, w: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            s, n = carry
            after = step(s, (w, x, n))
            return (after, n + 1), (after.sum(), s[2]) if leaves else None

        return jax.lax.scan(body, (c, jnp.int32(seed % 3)), xs)

    return run


def arguments(seed: int, steps: int = 4) -> tuple[np.ndarray, ...]:
    """Those of ``program``."""
    random = np.random.default_rng(seed)
    c, w, xs = (random.standard_normal(dims).astype(np.float32) for dims in (N, (N, N), steps))
    return c, 0.3 * w, xs


def _step(rng: random.Random, depth: int) -> Step:
    parts = [_part(rng, depth) for _ in range(rng.randint(1, 3))]
    if depth and not any(is_loop for _, is_loop in parts):
        parts.insert(rng.randint(0, len(parts)), (_loop(rng, depth), True))

    def step(c: Any, given: Any) -> Any:
        for part, _ in parts:
            c = part(c, given)
        return c

    return step


def _part(rng: random.Random, depth: int) -> tuple[Step, bool]:
    if depth and rng.random() < 0.4:
        return _loop(rng, depth), True
    return rng.choice(_STRAIGHT), False


def _loop(rng: random.Random, depth: int) -> Step:
    return rng.choice((_counted, _tested, _scanned, _chosen, _switched))(rng, depth - 1)


def _counted(rng: random.Random, depth: int) -> Step:
    inner, trips, reads = _step(rng, depth), rng.randint(1, 4), rng.random() < 0.5

    def step(c: Any, given: Any) -> Any:
        w, x, n = given

        def body(k: Any, s: Any) -> Any:
            return inner(s, (w, x * 0.5 + k if reads else x, n))

        return jax.lax.fori_loop(0, trips, body, c)

    return step


def _tested(rng: random.Random, depth: int) -> Step:
    inner, most = _step(rng, depth), rng.randint(0, 5)

    def step(c: Any, given: Any) -> Any:
        w, x, n = given

        def goes_on(s: Any) -> Any:
            return (s[1] < most + n % 2) & (jnp.abs(s[0]).sum() < 50)

        def body(s: Any) -> Any:
            return inner(s[0], (w, x, n + s[1])), s[1] + 1

        last, count = jax.lax.while_loop(goes_on, body, (c, jnp.int32(0)))
        return last * 0.9 + 0.01 * count

    return step


def _scanned(rng: random.Random, depth: int) -> Step:
    """Over a table and what the step around it has made, with results of each step."""
    inner, back = _step(rng, depth), rng.random() < 0.5

    def step(c: Any, given: Any) -> Any:
        w, x, n = given

        def body(s: Any, at: Any) -> Any:
            t, own = at
            s = inner(s, (w, x + t, n))
            return s, (s * own, s[1])

        last, (rows, numbers) = jax.lax.scan(body, c, (jnp.asarray(TABLE), jnp.cos(c[:5])), reverse=back)
        return last + 0.1 * rows.sum(0) + 0.05 * numbers[3] * rows[1]

    return step


def _chosen(rng: random.Random, depth: int) -> Step:
    one, other, limit = _step(rng, depth), _step(rng, depth), rng.uniform(-1, 1)

    def step(c: Any, given: Any) -> Any:
        return jax.lax.cond(c.sum() > limit, lambda s: one(s, given), lambda s: other(s, given), c)

    return step


def _switched(rng: random.Random, depth: int) -> Step:
    """Also with numbers outside, which mean the nearest branch."""
    branches, first = [_step(rng, depth) for _ in range(3)], rng.randint(-2, 2)

    def step(c: Any, given: Any) -> Any:
        return jax.lax.switch(given[2] + first, [lambda s, b=b: b(s, given) for b in branches], c)

    return step


def _written(c: Any, given: Any) -> Any:
    _, x, n = given
    return c.at[n % N].set(jnp.sin(x) + c[(n + 3) % N])


_STRAIGHT: tuple[Step, ...] = (
    lambda c, given: jnp.tanh(given[0] @ c + given[1]),
    lambda c, given: jnp.sin(c) + 0.1 * given[1],
    lambda c, given: c[::-1] * 0.8 + given[1],
    lambda c, given: c / (1 + jnp.abs(c).max()) + 0.2,
    lambda c, given: jnp.concatenate([c[2:], c[:2]]) * jnp.cos(given[1]),
    lambda c, given: jnp.where(c > c.mean(), c * 0.5, c + 0.3 * (given[2] % 2)),
    _written,
)
