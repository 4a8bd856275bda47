"""``python -m bench first_minute --growth``: programs that grow in one way each, and what planning them alone takes.

A loop whose body grows to 12,000 operations, a perceptron of up to 200 layers, a recurrent net of up to 100 steps
written out, an update of up to 2,000 arguments: each size compiled by XLA, and planned as the default mode plans, in a
process of its own. ``python -m bench planners`` does the same with layers alike and unlike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from msgspec import Struct
from rich.table import Table

from bench.small.made import Made, normal
from jax_stitch.util.formatting import format_seconds

AT_MOST = 1.5
"""How much more time an operation may take in a larger program of a kind than in a smaller one."""


class Kind(Struct, frozen=True):
    """Programs of a kind, by how large they are."""

    name: str
    make: Callable[[int], Made]
    sizes: tuple[int, ...]


def body(count: int) -> Made:
    """A scan that carries ``count`` unlike scalars, about 39 operations a step for each."""

    def step(carry: Sequence[Any], x: Any) -> tuple[list[Any], Any]:
        new = []
        for k, c in enumerate(carry):
            other = carry[(k + 1) % len(carry)]
            pulled = (other - c) * (0.1 + 0.001 * k) + jnp.sin(x * (k + 1.0)) * 0.01
            bent = jnp.where(pulled > 0.5, pulled * 0.5, pulled) / (1.0 + pulled * pulled)
            new.append(c * 0.99 + jnp.tanh(bent) - jnp.maximum(c * other, 0.0) * 0.01)
        return new, new[0]

    def run(start: Sequence[Any], xs: Any) -> Any:
        return jax.lax.scan(step, list(start), xs)

    return run, ([normal(k, 1)[0] for k in range(count)], normal(0, 50))


def layers(count: int) -> Made:
    """A step of gradient descent of a perceptron of so many layers."""

    def loss(params: Any, x: Any) -> Any:
        for w, b in params:
            x = x + jnp.tanh(x @ w + b)
        return (x**2).mean()

    def step(params: Any, x: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params, x))

    params = [(normal(k, 32, 32, scale=0.1), normal(k, 32)) for k in range(count)]
    return step, (params, normal(0, 16, 32))


def unrolled(count: int) -> Made:
    """The gradient of a recurrent net whose steps are written out."""

    def loss(weights: Any, xs: Any) -> Any:
        w, u, b = weights
        h = jnp.zeros((16, 32))
        for k in range(count):
            h = jnp.tanh(xs[k] @ w + h @ u + b)
        return (h**2).mean()

    weights = normal(0, 8, 32), normal(1, 32, 32, scale=0.2), normal(2, 32)
    return jax.grad(loss), (weights, normal(3, count, 16, 8))


def arguments(count: int) -> Made:
    """A step of momentum for arrays, two arguments each, of four shapes; ``count`` arguments in all."""

    def step(params: Any, velocity: Any) -> Any:
        velocity = jax.tree.map(lambda v, p: 0.9 * v + p * 0.1, velocity, params)
        return jax.tree.map(lambda p, v: p - 0.01 * v, params, velocity), velocity

    shapes = (64,), (16, 16), (8, 32), (128,)
    arrays = [[normal(2 * k + j, *shapes[k % 4]) for k in range(count // 2)] for j in (0, 1)]
    return step, tuple(arrays)


KINDS = (
    Kind("a loop's body", body, (40, 80, 160, 320)),
    Kind("layers", layers, (25, 50, 100, 200)),
    Kind("steps written out", unrolled, (12, 25, 50, 100)),
    Kind("arguments", arguments, (250, 500, 1000, 2000)),
)
_BETWEEN = " of "


def name_of(kind: Kind, size: int) -> str:
    """A program's name, as ``made`` takes it."""
    return f"{size}{_BETWEEN}{kind.name}"


def names() -> list[str]:
    """Of all programs."""
    return [name_of(kind, size) for kind in KINDS for size in kind.sizes]


def made(name: str) -> Made:
    """The function of a name and its arguments, floats in float32."""
    size, _, kind = name.partition(_BETWEEN)
    (make,) = (k.make for k in KINDS if k.name == kind)
    fun, args = make(int(size))
    return fun, jax.tree_util.tree_map(functools.partial(jnp.asarray, dtype=jnp.float32), args)


def per_operation(row: Mapping[str, Any]) -> float:
    """Processor seconds of planning for an operation of XLA's program."""
    return float(row["planning"] / row["operations"])


def grown(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By kind, the most that the time for an operation grows from a program to a larger one; 1 where it only falls."""
    found: dict[str, float] = {}
    for kind in KINDS:
        times = [per_operation(row) for row in rows if row["kind"] == kind.name]
        found[kind.name] = max((later / t for k, t in enumerate(times) for later in times[k:]), default=1.0)
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Of the rows, the smallest program of a kind first."""
    result = Table(title="What planning alone takes of processor time, by the size of the program")
    result.add_column("kind")
    for column in ("size", "operations", "XLA", "planning", "plan / XLA", "an operation"):
        result.add_column(column, justify="right")
    for row in rows:
        ratio = row["planning"] / row["xla"]
        times = (format_seconds(row["xla"]), format_seconds(row["planning"]), f"{ratio:.2f}")
        each = format_seconds(per_operation(row))
        result.add_row(row["kind"], str(row["size"]), f"{row['operations']:,}", *times, each)
    for kind, most in grown(rows).items():
        result.add_row(kind, "", "", "", "", "grows by", f"{most:.2f}")
    return result
