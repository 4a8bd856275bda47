"""Loops of every form: what they carry, loops and branches inside them, what comes before and after; against XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.loops.agreement import Case, assert_equals_xla, loops_of

B, T = 37, 23
RNG = np.random.default_rng(0)
CASES: dict[str, Case] = {}


def normal(*shape: int) -> jax.Array:
    return jax.device_put(RNG.standard_normal(shape).astype(np.float32) * 0.1)


def integers(high: int) -> jax.Array:
    return jax.device_put(RNG.integers(0, high, B).astype(np.int32))


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a function and its arguments to the cases."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__] = function, args
        return function

    return add


@case(normal(B), normal(B))
def swapped(a: Any, b: Any) -> Any:
    """Values carried that change places: one must not be overwritten before the other is read."""
    return lax.scan(lambda c, _: ((c[1], c[0] * 1.1), c[0]), (a, b), None, length=T)


@case(normal(B, 3), normal(B), jnp.int32(5))
def mixed_ranks(x: Any, y: Any, k: Any) -> Any:
    """A matrix, a vector and a number that is the same for all rows."""

    def step(c: Any, i: Any) -> Any:
        x, y, k = c
        return (x * 0.9 + y[:, None] * k.astype(jnp.float32), y + x.sum(-1), k + i), (k, y)

    return lax.scan(step, (x, y, k), jnp.arange(T))


@case(normal(B))
def nested_uniform(x: Any) -> Any:
    """A loop inside, its length data, the same for all rows."""

    def step(x: Any, i: Any) -> Any:
        x = lax.fori_loop(0, i % 5 + 10, lambda j, x: x * 0.99 + 0.001 * j, x)
        return x, x

    return lax.scan(step, x, jnp.arange(T))


@case(normal(B) * 10)
def nested_per_row(x: Any) -> Any:
    """A loop inside that each row leaves when it is done."""

    def one(x: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            x = lax.while_loop(lambda y: jnp.abs(y) > 0.5, lambda y: y * 0.7, x * 3)
            return x + 0.1, x

        return lax.scan(step, x, None, length=T)

    return jax.vmap(one)(x)


@case(normal(B))
def triple_nested(x: Any) -> Any:
    """Three loops, one inside the other, too long to be unrolled."""

    def repeated(times: int, f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: lax.fori_loop(0, times, lambda i, x: f(x) + 0.01 * i, x)

    return repeated(11, repeated(9, repeated(12, jnp.sin)))(x)


@case(normal(B))
def cond_uniform(x: Any) -> Any:
    """A branch that all rows take."""

    def step(x: Any, i: Any) -> Any:
        x = lax.cond(i % 3 == 0, lambda x: jnp.exp(x) * 0.5, lambda x: x * 0.9, x)
        return x, x

    return lax.scan(step, x, jnp.arange(T))


@case(normal(B), normal(B) > 0)
def cond_per_row(x: Any, p: Any) -> Any:
    """A branch that each row takes or not."""

    def one(x: Any, p: Any) -> Any:
        def step(x: Any, i: Any) -> Any:
            x = lax.cond(p & (i % 2 == 0), lambda x: x + 0.1, lambda x: x * 0.9, x)
            return x, x

        return lax.scan(step, x, jnp.arange(T))

    return jax.vmap(one)(x, p)


@case(normal(B))
def switch_uniform(x: Any) -> Any:
    """More branches than two, and indices on both sides of their range."""

    def step(x: Any, i: Any) -> Any:
        x = lax.switch(i - 2, [lambda x: x + 0.1, lambda x: x * 0.9, lambda x: jnp.sin(x), lambda x: x - 0.2], x)
        return x, x

    return lax.scan(step, x, jnp.arange(9))


@case(normal(B))
def loop_in_a_branch(x: Any) -> Any:
    """A loop that must make no trip where its branch is not taken."""

    def step(x: Any, i: Any) -> Any:
        x = lax.cond(
            i % 2 == 0,
            lambda x: lax.while_loop(lambda c: c[0] < i, lambda c: (c[0] + 1, c[1] * 0.9), (0, x))[1],
            lambda x: x + 0.1,
            x,
        )
        return x, x

    return lax.scan(step, x, jnp.arange(T))


@case(normal(T, B))
def reverse(xs: Any) -> Any:
    """Slices from the end."""
    return lax.scan(lambda c, x: (c * 0.9 + x, c), jnp.zeros(B), xs, reverse=True)


@case(normal(T, B))
def two_loops(xs: Any) -> Any:
    """A loop that reads from the end what another wrote."""
    c, ys = lax.scan(lambda c, x: (c * 0.9 + x, c), jnp.zeros(B), xs)
    d, zs = lax.scan(lambda c, x: (c * 0.5 + x, c * 2), c, ys, reverse=True)
    return d, zs


@case(normal(T, B))
def smoother(xs: Any) -> Any:
    """What is made of two loops' slices that are written in opposite orders."""
    c, ys = lax.scan(lambda c, x: (c * 0.9 + x, c), jnp.zeros(B), xs)
    _, zs = lax.scan(lambda c, x: (c * 0.5 + x, c * 2), c, ys, reverse=True)
    return ys + zs


@case(normal(B))
def counter_after(x: Any) -> Any:
    """A counter read after its loop."""
    i, x = lax.while_loop(lambda c: c[0] < 50, lambda c: (c[0] + 3, c[1] * 0.99), (0, x))
    return x * i, i


@case(normal(B), normal(B, 7))
def epilogue(x: Any, w: Any) -> Any:
    """Operations before the loop and after it."""
    x = lax.fori_loop(0, 30, lambda i, x: jnp.sin(x) + 0.1, jnp.tanh(x) * 2)
    return (jnp.exp(x)[:, None] * w).sum(-1), x > 0


@case(normal(B, T))
def batch_major(x: Any) -> Any:
    """The steps last in memory, for slices read and written."""
    return jax.vmap(lambda x: lax.scan(lambda c, v: (c * 0.9 + v, jnp.tanh(c)), jnp.float32(0), x)[1])(x)


@case(normal(B, T, 4))
def batch_major_reverse(x: Any) -> Any:
    """The same from the end, with several values a step."""
    return jax.vmap(
        lambda x: lax.scan(lambda c, v: (c * 0.9 + v, jnp.tanh(c)[::-1]), jnp.zeros(4), x, reverse=True)[1]
    )(x)


@case(normal(B), integers(10), normal(10))
def table_lookup(x: Any, i: Any, t: Any) -> Any:
    """Elements of an argument whose place is data."""

    def step(c: Any, _: Any) -> Any:
        x, i = c
        v = t[i]
        return (x * 0.9 + v, (i * 7 + 3) % 10), v

    return lax.scan(step, (x, i), None, length=T)


@case(normal(B, 4), integers(4))
def carried_lookup(x: Any, i: Any) -> Any:
    """Elements of what is carried whose place is data."""

    def one(x: Any, i: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            x, i = c
            return (x * 0.9 + x[i], (i * 3 + 1) % 4), x[i]

        return lax.scan(step, (x, i), None, length=T)

    return jax.vmap(one)(x, i)


@case(normal(B, 8), normal(T, B))
def delay_line(buf: Any, xs: Any) -> Any:
    """An update in place of what is carried."""

    def step(c: Any, xi: Any) -> Any:
        buf, i = c
        (x,) = xi
        out = lax.dynamic_index_in_dim(buf, i % 8, 1, keepdims=False)
        buf = lax.dynamic_update_index_in_dim(buf, x + 0.5 * out, i % 8, 1)
        return (buf, i + 1), out

    return lax.scan(step, (buf, 0), (xs,))


@case(normal(B, 200))
def wide_elementwise(x: Any) -> Any:
    """More values per row than registers, but no two need each other."""
    return lax.fori_loop(0, 30, lambda i, x: jnp.sin(x) * 0.9, x)


@case(jax.random.key(5), normal(B))
def rng_all(key: Any, x: Any) -> Any:
    """Every random function, keys split and folded in the loop."""

    def step(c: Any, i: Any) -> Any:
        key, x = c
        key, a, b, d, e, f = jax.random.split(key, 6)
        k2 = jax.random.fold_in(f, i)
        ys = (
            jax.random.bits(a, (B,)),
            jax.random.uniform(b, (B,)),
            jax.random.normal(d, (B,)),
            jax.random.bernoulli(e, 0.3, (B,)),
            jax.random.randint(k2, (B,), 0, 17),
            jax.random.categorical(a, jnp.zeros((B, 5))),
        )
        return (key, x + ys[2]), ys

    (k, x), ys = lax.scan(step, (key, x), jnp.arange(5))
    return jax.random.key_data(k), x, ys


@case(normal(B).astype(jnp.bfloat16))
def half(x: Any) -> Any:
    """Stacks of small floats, which XLA's CPU compiler widens."""
    return lax.scan(lambda x, _: (x * jnp.bfloat16(0.9) + jnp.bfloat16(0.1), x), x, None, length=T)


@case(normal(B), jnp.zeros((0,)))
def zero_size_carry(x: Any, z: Any) -> Any:
    """A carried value with no elements."""
    return lax.scan(lambda c, _: ((c[0] * 0.9, c[1] * 2), c[0]), (x, z), None, length=T)


@case(normal(T, B, 3))
def observations(xs: Any) -> Any:
    """Outputs put together of several values."""

    def step(c: Any, x: Any) -> Any:
        c = c * 0.9 + x
        return c, {"obs": jnp.concatenate([c, jnp.sin(c[:, :1])], -1), "sum": c.sum(-1)}

    return lax.scan(step, jnp.zeros((B, 3)), xs)


@case(normal(T, B))
def final_reductions(xs: Any) -> Any:
    """Each row's own reductions of what it stacked."""
    c, ys = lax.scan(lambda c, x: (c * 0.9 + x, c), jnp.zeros(B), xs)
    return ys.mean(0), ys.max(0), c


@case(normal(5, 6))
def nested_scan_stack(x: Any) -> Any:
    """Stacks of stacks."""

    def outer(c: Any, _: Any) -> Any:
        c, ys = lax.scan(lambda c, _: (c * 0.9 + 0.1, c), c, None, length=12)
        return c, ys

    return lax.scan(outer, x, None, length=10)


@case(normal(B, 4, 4), normal(B, 4))
def matrix_power(a: Any, v: Any) -> Any:
    """Small products."""
    return lax.fori_loop(
        0, 20, lambda i, v: jnp.einsum("bij,bj->bi", a, v) / (1e-3 + jnp.linalg.norm(v, axis=-1, keepdims=True)), v
    )


@case(normal(B))
def permuted(x: Any) -> Any:
    """Rows that need each other, few enough for one thread."""
    return lax.scan(lambda c, _: (c * 0.9, c[::-1]), x, None, length=T)


@case(normal(4, B), normal(T, 4, B))
def stack_of_parts(x: Any, xs: Any) -> Any:
    """Rows last in memory."""

    def step(c: Any, x: Any) -> Any:
        a, b = c[:2], c[2:]
        c = jnp.concatenate([b * 0.9, a]) + x
        return c, jnp.stack([c[0], c[3]])

    return lax.scan(step, x, xs)


@case(jnp.abs(normal(B)) + 0.1)
def newton(a: Any) -> Any:
    """A condition of which XLA takes a part out of the body, but not out of the condition."""

    def one(a: Any) -> Any:
        return lax.while_loop(
            lambda c: (jnp.abs(c[0] * c[0] - a) > 1e-3 * a) & (c[1] < 50),
            lambda c: (0.5 * (c[0] + a / c[0]), c[1] + 1),
            (a, 0),
        )

    return jax.vmap(one)(a)


FAST = [name for name in CASES if name not in ("rng_all", "final_reductions")]
NAMES = [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in FAST)]


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_xla(name: str, device: str) -> None:
    assert_equals_xla(*CASES[name], device)


@pytest.mark.parametrize("name", NAMES)
def test_is_one_loop(name: str) -> None:
    """What stays with XLA passes every comparison."""
    plan, loops = loops_of(*CASES[name])
    assert loops == 1, str(plan)
