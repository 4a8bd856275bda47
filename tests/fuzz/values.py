"""Types, shapes and NumPy expressions for a program's inputs, with a taste for corners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SPACE = {"jax": jax, "jnp": jnp, "lax": lax, "np": np}
"""The names that a program may use."""

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
RARE = ("float8_e4m3fn", "float8_e5m2", "int4", "uint4")
WIDE = frozenset({"float64", "int64", "uint64", "complex128"})
"""The types that need x64."""

DIMENSIONS = (1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 100, 127, 128, 129, 257)
LONG = (511, 512, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 4096)
LARGEST = 4200
"""Elements of an array."""


def dtype_text(name: str) -> str:
    return "jnp.bool_" if name == "bool" else f"jnp.{name}"


def draw_dtype(rng: Random, x64: bool) -> str:
    while True:
        kind = rng.random()
        if kind < 0.6:
            name = rng.choice((("float64",) * 3 + ("float32",) * 2 if x64 else ("float32",) * 5) + FLOATS)
        elif kind < 0.88:
            name = rng.choice(("int32",) * 4 + INTEGERS)
        elif kind < 0.95:
            name = "bool"
        else:
            name = rng.choice(COMPLEX) if kind < 0.99 else rng.choice(RARE)
        if x64 or name not in WIDE:
            return name


def draw_dimensions(rng: Random) -> tuple[int, ...]:
    """The sizes that most shapes of one program are made of: few, so that its values fit each other."""
    sizes = [rng.choice(DIMENSIONS) for _ in range(rng.choice((1, 2, 3, 3)))]
    if rng.random() < 0.3:
        sizes.append(rng.choice(LONG))
    if rng.random() < 0.06:
        sizes.append(0)
    return tuple(sizes)


def draw_shape(rng: Random, sizes: Sequence[int]) -> tuple[int, ...]:
    shape = [rng.choice(sizes) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4)))]
    if shape and rng.random() < 0.15:
        shape[rng.randrange(len(shape))] = 1
    while math.prod(shape) > LARGEST:
        shape.remove(max(shape))
    return tuple(shape)


def input_text(rng: Random, dtype: str, shape: Sequence[int]) -> str:
    """A NumPy expression of this type: random, with repeats, in order, of special values, or all the same."""
    shape = tuple(shape)
    size = math.prod(shape)
    make = f"np.random.default_rng({rng.randrange(1000)})"
    cast = f".astype({dtype_text(dtype)})"
    kind = rng.random()
    if dtype == "bool":
        return f"{make}.random({shape}) < {rng.choice((0.1, 0.5, 0.9))}"
    if dtype in COMPLEX:
        return f"({make}.standard_normal({shape}) + 1j * {make}.random({shape})){cast}"
    if dtype in INTEGERS:
        signed = not dtype.startswith("u")
        if kind < 0.25:
            info = np.iinfo(dtype)
            return f"{make}.integers({info.min}, {info.max}, {shape}, dtype={dtype_text(dtype)}, endpoint=True)"
        if kind < 0.4:
            return f"np.arange({size}).reshape({shape}){cast}"
        if kind < 0.5:
            info = np.iinfo(dtype)
            return f"{make}.choice(np.array([{info.min}, {info.max}, 0, 1, 7], {dtype_text(dtype)}), {shape})"
        low, high = rng.choice(((0, 2), (0, 4), (0, 10), (-3, 4), (-10, 60)))
        return f"{make}.integers({low if signed else 0}, {high}, {shape}){cast}"
    if dtype in RARE:
        return f"{make}.integers(0, 4, {shape}){cast}"
    if kind < 0.34:
        return f"{make}.standard_normal({shape}){cast}"
    if kind < 0.54:
        return f"{make}.integers(-4, 5, {shape}){cast}"
    if kind < 0.6:
        return f"{make}.random({shape}){cast}"
    if kind < 0.64:  # A largest value that is below 0, and a smallest product far from 1.
        return f"(-1 - 9 * {make}.random({shape})){cast}"
    if kind < 0.71:
        return f"np.linspace({rng.choice((-2, 0, 1))}, {rng.choice((1, 3, 50))}, {size}).reshape({shape}){cast}"
    if kind < 0.77:
        return f"{make}.permutation({size}).reshape({shape}){cast}"
    if kind < 0.82:
        return f"np.arange({size}, 0, -1).reshape({shape}){cast}"
    if kind < 0.87:
        return f"({make}.standard_normal({shape}) * 10.0 ** {make}.integers(-3, 4, {shape})){cast}"
    if kind < 0.94:
        special = "[np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.5, 100.0]"
        return f"{make}.choice({special}, {shape}){cast}"
    return f"np.full({shape}, {rng.choice((0.0, 1.0, -1.5))}){cast}"
