"""Operations that once were refused, or raised, in kernels: many neighbours of each in one program, compiled once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tests.neighbours.sorts import Program, floats, integers

WHOLE = integers(6, 40, below=2**31 - 1)
SIGNED = (WHOLE - 2**30).astype(np.int32)
UNSIGNED = integers(6, 40, below=2**32 - 1, dtype=np.uint32)


def high_halves(a: jax.Array, b: jax.Array, u: jax.Array) -> list[jax.Array]:
    """Without those that XLA's CPU compiler refuses: a choice of two, and in loops."""
    row, number = a[0], a[3, 5]
    return [
        lax.mulhi(a, b) + 1,
        lax.mulhi(u, u[::-1]) + np.uint32(1),
        lax.mulhi(row, b[1]) * 2,
        lax.mulhi(number, b[0, 0]) - 1,
        lax.mulhi(a, lax.broadcast(number, (6, 40))) + 1,
        lax.mulhi(a, b).sum(1),
        lax.mulhi(a, b).max(0),
        jnp.cumsum(lax.mulhi(u, u), 1),
        lax.mulhi(a.T, b.T)[:, 2] + 3,
        jnp.sort(lax.mulhi(a, b), -1),
        lax.mulhi(a.reshape(2, 3, 40), b.reshape(2, 3, 40)) * 2,
    ]


def everywhere(x: jax.Array, n: jax.Array) -> list[jax.Array]:
    number = jnp.tanh(x[0, 0])
    return [
        lax.broadcast(number, (3, 5)) + 1,
        lax.broadcast(number, (7,)) * 2,
        lax.broadcast(number, (1,)) * 2,
        lax.broadcast(number, ()) * 2,
        lax.broadcast(number, (2, 3, 4)) - 1,
        lax.broadcast(x[0], (3,)) * 2,
        lax.broadcast(x, (2, 2)) + x,
        lax.broadcast(x.astype(jnp.float16), (4,)) * 2,
        lax.broadcast(n.astype(jnp.int8), (3,)) + 1,
        lax.broadcast(n > 4, (2,)) & True,
        lax.broadcast(x.sum(), (5, 3)) + 1,
        lax.broadcast(x.sum(1), (4,)).max(1),
        lax.broadcast(lax.broadcast(number, (3,)), (2,)) + 1,
        lax.broadcast(number, (0, 3)) + 1,
    ]


def convolution(
    x: Any, w: Any, out: Any, strides: tuple[int, ...] = (1,), padding: Any = "SAME", **more: Any
) -> jax.Array:
    letters = "HWD"[: x.ndim - 2]
    numbers = ("NC" + letters, "OI" + letters, "NC" + letters)
    return (
        lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=numbers, preferred_element_type=out, **more)
        * 2
    )


def convolutions(x: jax.Array, w: jax.Array, image: jax.Array, filters: jax.Array) -> list[jax.Array]:
    half, brain, byte = jnp.float16, jnp.bfloat16, jnp.int8
    f32, i32 = jnp.float32, jnp.int32

    def of(a: jax.Array, dtype: Any) -> jax.Array:
        return (a * 4).astype(dtype)

    return [
        convolution(of(x, half), of(w, half), f32),
        convolution(of(x, brain), of(w, brain), f32),
        convolution(of(x, half), of(w, half), half),
        convolution(of(x, byte), of(w, byte), i32),
        convolution(of(x, jnp.uint8), of(w, jnp.uint8), jnp.uint32),
        convolution(of(x, jnp.int16), of(w, jnp.int16), i32),
        convolution(of(x, half), of(w, half), f32, (2,), "VALID"),
        convolution(of(x, half), of(w, half), f32, rhs_dilation=(2,)),
        convolution(of(x, brain), of(w, brain), f32, (1,), [(1, 1)], lhs_dilation=(2,)),
        convolution(of(x, half), of(w[:3, :1], half), f32, feature_group_count=3),
        convolution(of(image, half), of(filters, half), f32, (1, 1)),
        convolution(of(image, byte), of(filters, byte), i32, (2, 1), "VALID"),
        convolution(of(x[..., 0], half), of(w[..., 0], half), f32, ()),
        convolution(of(x, half), of(w, half), f32).sum(-1),
    ]


CURVES = {
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "asinh": jnp.arcsinh,
    "acosh": lambda x: jnp.arccosh(1 + x * x),
    "atanh": lambda x: jnp.arctanh(x / 8),
    "asin": lambda x: jnp.arcsin(x / 8),
    "acos": lambda x: jnp.arccos(x / 8),
    "tan": jnp.tan,
    "cbrt": jnp.cbrt,
}


def curves(name: str) -> Any:
    """One function in many places."""
    of = CURVES[name]

    def run(x: jax.Array, half: jax.Array, brain: jax.Array) -> list[jax.Array]:
        return [
            of(x) * 2,
            of(x[0]) + 1,
            of(x[2, 3]) + 1,
            of(x).sum(-1),
            of(x).max(0),
            of(x.T)[:, :3] * 2,
            of(x[:, None, :]) - x,
            of(half) * 2,
            of(brain) * 2,
            of(half).astype(jnp.float32).sum(-1),
            jnp.cumsum(of(x), -1) * 0.1,
            jnp.where(x > 0, of(x), x),
            lax.fori_loop(0, 3, lambda _, c: of(c * 0.5) * 0.25, x),
            jax.grad(lambda y: of(y).sum())(x * 0.5 + 3),
        ]

    return run


def bits(x: jax.Array) -> list[jax.Array]:
    """Counts of bits."""
    found = []
    for dtype in (jnp.int8, jnp.int16, jnp.int32, jnp.uint8, jnp.uint16, jnp.uint32):
        y = x.astype(dtype)
        found += [lax.population_count(y) + y, lax.clz(y) * 2]
    return [*found, lax.population_count(x).sum(-1), jnp.cumsum(lax.clz(x), 0), lax.clz(x[0, 0]) + 1]


ROWS = floats(5, 33)
OPCODES: dict[str, Program] = {
    "high halves of products": (high_halves, (SIGNED, SIGNED[::-1].copy(), UNSIGNED)),
    "broadcast without dimensions": (everywhere, (floats(4, 6), integers(4, 6))),
    "convolutions to another type": (
        convolutions,
        (floats(2, 3, 9), floats(6, 3, 3), floats(1, 2, 6, 5), floats(4, 2, 3, 2)),
    ),
    "counts of bits": (bits, (integers(3, 31, below=1 << 20),)),
    **{name: (curves(name), (ROWS, ROWS.astype(np.float16), ROWS.astype(ml_dtypes.bfloat16))) for name in CURVES},
}
