"""Reads of tables inside loops did not compile; an argmax there was taken for an array; scans took minutes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.neighbours.sorts import Program, floats, integers

GRID = np.linspace(-2.0, 2.0, 17).astype(np.float32)


def search(table: jax.Array, x: jax.Array) -> jax.Array:
    """By halves, written by hand."""

    def step(_: Any, ends: Any) -> Any:
        low, high = ends
        middle = (low + high) // 2
        left = table[middle] < x
        return jnp.where(left, middle, low), jnp.where(left, high, middle)

    return lax.fori_loop(0, 6, step, (jnp.int32(0), jnp.int32(table.shape[0])))[1]


TABLES: dict[str, Program] = {
    "interpolation": (jnp.interp, (floats(100), GRID, np.sin(GRID))),
    "interpolation with ends": (lambda x: jnp.interp(x, GRID, GRID**2, left=-1.0, right=9.0), (floats(64) * 3,)),
    "interpolation with a period": (lambda x: jnp.interp(x, GRID, GRID, period=1.5), (floats(33) * 3,)),
    "interpolation, many tables": (
        lambda x, f: jax.vmap(lambda x, f: jnp.interp(x, GRID, f))(x, f).sum(-1),
        (floats(5, 40), floats(5, 17)),
    ),
    "interpolation of rows": (lambda x: jnp.interp(x, GRID, jnp.exp(GRID)) * 2, (floats(3, 7, 5),)),
    "search of many": (lambda x: jax.vmap(lambda v: jnp.searchsorted(GRID, v))(x) * 2, (floats(65),)),
    "search from the right": (lambda x: jnp.searchsorted(GRID, x, side="right") * 2, (floats(33),)),
    "search in whole numbers": (
        lambda x: jnp.searchsorted(jnp.arange(0, 64, 2), x) + 1,
        (integers(50, below=70),),
    ),
    "search in many tables": (
        lambda t, x: jax.vmap(jnp.searchsorted)(jnp.sort(t, -1), x) * 2,
        (floats(6, 31), floats(6, 9)),
    ),
    "search by hand": (lambda x: jax.vmap(lambda v: search(jnp.asarray(GRID), v))(x) * 2, (floats(32),)),
    "search by hand, halves": (
        lambda x: jax.vmap(lambda v: search(jnp.asarray(GRID, jnp.float16), v))(x) * 2,
        (floats(32, dtype=np.float16),),
    ),
    "histogram": (lambda x: jnp.histogram(x, bins=8, range=(-2, 2))[0], (floats(200),)),
    "histograms": (lambda x: jax.vmap(lambda r: jnp.histogram(r, bins=5, range=(-2, 2))[0])(x), (floats(4, 60),)),
    "digits": (lambda x: jnp.digitize(x, jnp.asarray(GRID)) * 2, (floats(4, 9),)),
    "walk through a table": (
        lambda t, s: lax.scan(lambda c, _: (t[c], t[c] * 2), s, None, length=9),
        (integers(16, below=16), np.int32(3)),
    ),
    "walks through a table": (
        lambda t, s: jax.vmap(lambda c: lax.fori_loop(0, 7, lambda _, c: t[c], c))(s) + 1,
        (integers(16, below=16), integers(33, below=16)),
    ),
    "places out of range": (
        lambda t, s: jax.vmap(lambda c: lax.fori_loop(0, 5, lambda k, c: t[c * 2 - 9] + k, c))(s),
        (integers(12, below=30), integers(20, below=40)),
    ),
    "rows of a table": (
        lambda t, s: lax.scan(lambda c, i: (jnp.tanh(c + t[i]), c.sum()), jnp.zeros(8), s),
        (floats(10, 8), integers(12, below=10)),
    ),
    "slices of a table": (
        lambda t, s: lax.scan(lambda c, i: (c + lax.dynamic_slice(t, (i,), (4,)), c[0]), jnp.zeros(4), s),
        (floats(20), integers(12, below=25)),
    ),
    "guarded reads": (
        lambda t, x: jax.vmap(lambda v: lax.fori_loop(0, 4, lambda k, v: v + jnp.where(v > 0, t[k], -t[3 - k]), v))(x),
        (floats(4), floats(31)),
    ),
}


def steps(choose: Any) -> Any:
    """A loop in which each step depends on what ``choose`` says of what is carried."""

    def run(x: jax.Array) -> Any:
        def step(carry: jax.Array, _: Any) -> Any:
            chosen = choose(carry)
            return jnp.roll(carry, 1, -1) * 0.9 + chosen.astype(carry.dtype)[..., None] * 0.01, chosen

        return lax.scan(step, x, None, length=6)

    return run


def leader(x: jax.Array) -> Any:
    """Which place leads, in a loop of unknown length."""

    def step(state: Any) -> Any:
        k, x = state
        return k + jnp.argmax(x).astype(jnp.int32) + 1, jnp.flip(x) * 0.8

    return lax.while_loop(lambda s: s[0] < 40, step, (jnp.int32(0), x))


ARGUMENTS: dict[str, Program] = {
    "largest": (steps(lambda c: jnp.argmax(c, -1)), (floats(5),)),
    "smallest": (steps(lambda c: jnp.argmin(c, -1)), (floats(5),)),
    "of many rows": (jax.vmap(steps(lambda c: jnp.argmax(c, -1))), (floats(33, 4),)),
    "of rows of rows": (steps(lambda c: jnp.argmax(c, -1)), (floats(3, 8),)),
    "across rows": (steps(lambda c: jnp.argmax(c, 0)[:1]), (floats(6, 1),)),
    "with ties": (steps(lambda c: jnp.argmax(jnp.round(c), -1)), (np.zeros((4, 7), np.float32),)),
    "of NaN": (steps(lambda c: jnp.argmax(c, -1)), (np.array([1.0, np.nan, 3.0, np.nan], np.float32),)),
    "of whole numbers": (
        steps(lambda c: jnp.argmax((c * 4).astype(jnp.int32), -1)),
        (floats(9),),
    ),
    "of halves": (steps(lambda c: jnp.argmin(c.astype(jnp.float16), -1)), (floats(12),)),
    "value and place": (
        lambda x: lax.fori_loop(0, 5, lambda k, c: c * 0.5 + lax.top_k(c, 1)[0] + jnp.argmax(c), x),
        (floats(8),),
    ),
    "of one element": (steps(lambda c: jnp.argmax(c, -1)), (floats(1),)),
    "in a loop of unknown length": (leader, (floats(6),)),
    "in many loops of unknown length": (jax.vmap(leader), (floats(10, 6),)),
    "and then a read": (
        lambda x: lax.scan(lambda c, _: (c.at[jnp.argmax(c)].add(-1.0), c[jnp.argmax(c)]), x, None, length=5),
        (floats(7),),
    ),
}


def carried(dtype: Any, length: int | None = 5) -> Any:
    """A loop that carries values of a type that kernels do not compute, beside one that they do, and puts others in
    their place."""

    def run(x: jax.Array, given: jax.Array) -> Any:
        other = x.astype(dtype)

        def step(state: Any) -> Any:
            k, _, last, v = state
            return k + 1, last, other, jnp.tanh(v) + 0.1

        start = (jnp.int32(0), given, given, x)
        if length is None:
            return lax.while_loop(lambda s: s[0] < 3 + (x.sum() > 0).astype(jnp.int32), step, start)[1:]
        final, held = lax.scan(lambda c, _: (step(c), c[1]), start, None, length=length)
        return final[1:], held

    return run


def complex_numbers(*shape: int) -> np.ndarray:
    return (floats(*shape) + 1j * floats(*shape, seed=3)).astype(np.complex64)


CARRIED: dict[str, Program] = {
    "complex numbers": (carried(np.complex64), (floats(4), complex_numbers(4))),
    "one complex number": (carried(np.complex64), (floats(), complex_numbers())),
    "complex numbers, for as long as it takes": (carried(np.complex64, None), (floats(4), complex_numbers(4))),
    "one, for as long as it takes": (carried(np.complex64, None), (floats(), complex_numbers())),
    "many complex numbers": (
        jax.vmap(carried(np.complex64)),
        (floats(33, 3), complex_numbers(33, 3)),
    ),
    "truth values": (carried(bool), (floats(4), floats(4) > 0)),
    "bytes": (carried(np.int8), (floats(4), integers(4, dtype=np.int8))),
    "halves": (carried(np.float16), (floats(4), floats(4, dtype=np.float16))),
    "no elements": (carried(np.float32), (floats(0), floats(0))),
    "narrow floats": (carried(jnp.float8_e4m3fn), (floats(4), floats(4).astype(jnp.float8_e4m3fn))),
    "four bits": (carried(jnp.int4), (floats(4), integers(4, below=7).astype(jnp.int4))),
}


def beside(scan: Any) -> Any:
    """A scan beside its own operand."""
    return lambda x: (scan(x), x * 2, (scan(x) - x).sum(-1))


def linear(x: jax.Array) -> jax.Array:
    """First-order recurrence by pairs."""
    pairs = (jnp.tanh(x), x)
    return lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), pairs, axis=-1)[1]


SCANS: dict[str, Program] = {
    "sums of 32": (beside(lambda x: lax.associative_scan(jnp.add, x, axis=-1)), (floats(32),)),
    "sums of 128": (beside(lambda x: lax.associative_scan(jnp.add, x, axis=-1)), (floats(128),)),
    "sums of 1,023": (beside(lambda x: lax.associative_scan(jnp.add, x, axis=-1)), (floats(1023),)),
    "maxima": (beside(lambda x: lax.associative_scan(jnp.maximum, x, axis=-1)), (floats(3, 257),)),
    "minima from the end": (
        beside(lambda x: lax.associative_scan(lax.min, x, reverse=True, axis=1)),
        (floats(2, 65),),
    ),
    "products": (beside(lambda x: lax.associative_scan(jnp.multiply, jnp.cos(x), axis=-1)), (floats(4, 33),)),
    "along the first axis": (
        lambda x: (lax.associative_scan(jnp.add, x, axis=0), x.sum(0)),
        (floats(100, 3),),
    ),
    "a recurrence": (beside(linear), (floats(2, 64),)),
    "a recurrence's gradient": (jax.grad(lambda x: jnp.sum(linear(x) ** 2)), (floats(2, 33),)),
    "of a scan": (
        lambda x: lax.associative_scan(jnp.add, lax.associative_scan(jnp.maximum, x, axis=-1), axis=-1) + x,
        (floats(2, 31),),
    ),
    "running extrema and sums": (lambda x: (lax.cummax(x, 1), lax.cumsum(x, 1), x), (floats(3, 300),)),
    "halves": (beside(lambda x: lax.associative_scan(jnp.maximum, x, axis=-1)), (floats(65, dtype=np.float16),)),
    "of many": (jax.vmap(beside(linear)), (floats(5, 2, 16),)),
}
