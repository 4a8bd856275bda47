"""Single arguments: axes, shapes, numbers, arrays like another, keys, matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jax import numpy as jnp

from tests.fuzz import values
from tests.fuzz.draft import Draft, dtype_name, kind_of

Guess = Callable[[Draft, str], str | None]
"""An argument's text, given the value that the call is about; None leaves it out."""


def axis(d: Draft, main: str) -> str | None:
    rank = len(d.shape(main))
    if rank == 0:
        return d.rng.choice(("None", "0"))
    if rank > 1 and d.rng.random() < 0.2:
        chosen = d.rng.sample(range(rank), d.rng.randint(1, rank))
        return str(tuple(chosen))
    return str(d.rng.randrange(-rank, rank))


def one_axis(d: Draft, main: str) -> str:
    rank = max(len(d.shape(main)), 1)
    return str(d.rng.randrange(-rank, rank))


def axes(d: Draft, main: str) -> str:
    rank = len(d.shape(main))
    chosen = d.rng.sample(range(rank), d.rng.randint(0, rank))
    return str(tuple(chosen))


def permutation(d: Draft, main: str) -> str:
    rank = len(d.shape(main))
    return str(tuple(d.rng.sample(range(rank), rank)))


def new_shape(d: Draft, main: str) -> str:
    """Another shape of as many elements; now and then any shape."""
    rng = d.rng
    if rng.random() < 0.2:
        return str(values.draw_shape(rng, d.shared.sizes))
    rest = math.prod(d.shape(main))
    shape: list[int] = []
    while rest > 1 and len(shape) < 3:
        divisors = [k for k in range(1, min(rest, 129) + 1) if rest % k == 0]
        shape.append(rng.choice(divisors))
        rest //= shape[-1]
    shape.append(rest)
    rng.shuffle(shape)
    return str(tuple(shape))


def any_shape(d: Draft, main: str) -> str:
    return str(d.shape(main) if d.rng.random() < 0.4 else values.draw_shape(d.rng, d.shared.sizes))


def broader_shape(d: Draft, main: str) -> str:
    front = tuple(d.rng.choice((1, 2, 3, 5)) for _ in range(d.rng.randint(0, 2)))
    return str(front + tuple(n if n != 1 else d.rng.choice((1, 2, 4)) for n in d.shape(main)))


def small(*choices: Any) -> Guess:
    return lambda d, main: str(d.rng.choice(choices))


def text(*choices: str) -> Guess:
    return lambda d, main: repr(d.rng.choice(choices))


def flag(d: Draft, main: str) -> str:
    return d.rng.choice(("True", "False"))


def dtype(d: Draft, main: str) -> str:
    return d.dtype()


def similar(d: Draft, main: str) -> str:
    """An array of the same type; at times of another, or a number."""
    rng = d.rng
    kind = rng.random()
    if kind < 0.78:
        return d.like(main)
    if kind < 0.86 and kind_of(d.aval(main)) != "key":
        return d.number(dtype_name(d.aval(main)))
    if kind < 0.92:
        return d.like(main, shape=tuple(n if rng.random() < 0.6 else 1 for n in d.shape(main)))
    return d.pick()


def several(d: Draft, main: str) -> str:
    return f"[{', '.join([main, *(similar(d, main) for _ in range(d.rng.randint(1, 2)))])}]"


def mask(d: Draft, main: str) -> str:
    """Truth values: some of the program's, or those of the places at one side of an edge, or on a diagonal."""
    rng, shape = d.rng, d.shape(main)
    if not shape or rng.random() < 0.5:
        return d.like(main, dtype="bool")
    axis = rng.randrange(len(shape))
    compare = rng.choice(("<", "<=", ">", ">=", "==", "!="))
    place = f"lax.broadcasted_iota(jnp.int32, {shape}, {axis})"
    if len(shape) > 1 and rng.random() < 0.3:
        other = (axis + 1) % len(shape)
        return f"({place} {compare} lax.broadcasted_iota(jnp.int32, {shape}, {other}))"
    n = shape[axis]
    return f"({place} {compare} {rng.choice((0, 1, n - 2, n - 1, n, n // 2))})"


def scalar(d: Draft, main: str) -> str:
    return d.number(dtype_name(d.aval(main)))


def indices(d: Draft, main: str) -> str:
    """Whole numbers, some of them out of range."""
    rng = d.rng
    found = d.find(lambda a: kind_of(a) == "int" and 0 < math.prod(a.shape) <= 300)
    if found is not None and rng.random() < 0.3:
        return found
    most = max(d.shape(main) or (1,))
    edges = (0, 1, most - 1, most - 1, most - 1, most, most // 2)
    kind, place = rng.random(), f"jnp.arange({most})"
    if kind < 0.25:  # Of places: what is below zero counts from the end, and zero itself does not.
        return f"({place} - {rng.choice(edges)})"
    if kind < 0.6:  # At an edge another one.
        one, other = rng.sample((place, place, "0", str(most - 1)), 2)
        return f"jnp.where({place} {rng.choice(('<', '<', '<=', '>', '>='))} {rng.choice(edges)}, {one}, {other})"
    shape = d.shape(main) if rng.random() < 0.4 else tuple(rng.choice((1, 2, 3, 5)) for _ in range(rng.randint(0, 2)))
    low, high = rng.choice(((0, most), (0, most), (-most, most), (-most - 2, most + 3)))
    return d.input(
        "int32", shape, f"np.random.default_rng({rng.randrange(99)}).integers({low}, {high}, {shape}, np.int32)"
    )


def key(d: Draft, main: str) -> str:
    rng = d.rng
    if rng.random() < 0.5:
        found = d.find(lambda a: kind_of(a) == "key" and not a.shape)
        if found is not None:
            return found
    number = d.find(lambda a: kind_of(a) == "int" and not a.shape) if rng.random() < 0.4 else None
    return f"jax.random.key({number or rng.randrange(100)})"


def quantile(d: Draft, main: str) -> str:
    return d.rng.choice(("0.5", "jnp.array([0.0, 0.25, 1.0])", "0.9"))


def sections(d: Draft, main: str) -> str:
    return d.rng.choice(("1", "2", "3", "[1]", "[1, 3]", "(0, 2)"))


def pad_width(d: Draft, main: str) -> str:
    rng = d.rng
    if rng.random() < 0.3:
        return str(rng.choice((0, 1, 2)))
    return str([(rng.randint(0, 3), rng.randint(0, 3)) for _ in d.shape(main)])


def sorted_array(d: Draft, main: str) -> str:
    size = d.rng.choice((1, 2, 5, 31, 33, 100))
    found = d.find(lambda a: len(a.shape) == 1 and kind_of(a) in ("float", "int"))
    if found is not None and d.rng.random() < 0.4:
        return f"jnp.sort({found})"
    return f"jnp.arange({size}, dtype={values.dtype_text(dtype_name(d.aval(main)))})"


def matrix(d: Draft, main: str) -> str:
    """A square matrix, or a stack of them."""
    shape = d.shape(main)
    if len(shape) >= 2 and shape[-1] == shape[-2] and shape[-1] <= 9:
        return d.like(main)
    found = d.find(lambda a: len(a.shape) >= 2 and a.shape[-1] == a.shape[-2] <= 9 and kind_of(a) == "float")
    if found is not None and d.rng.random() < 0.7:
        return found
    n = d.rng.choice((1, 2, 3, 4, 5))
    name = dtype_name(d.aval(main)) if kind_of(d.aval(main)) in ("float", "complex") else "float32"
    name = "float32" if name in ("float16", "bfloat16") or not jnp.dtype(name).itemsize > 1 else name
    make = f"np.random.default_rng({d.rng.randrange(99)}).standard_normal(({n}, {n}))"
    content = f"({make} + 2 * np.eye({n})).astype({values.dtype_text(name)})"
    return d.input(name, (n, n), content)
