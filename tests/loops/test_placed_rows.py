"""Loops that overwrite few elements of a carried array in each step: rings, buffers, tables of dynamic programming."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import stitch_jit
from jax_stitch.frontend.capture import cuda_plugin_installed
from tests.loops.agreement import assert_equals_xla

Function = Callable[..., Any]
RNG = np.random.default_rng(3)
STEPS = 40


def array(*dims: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(dims).astype(dtype)


def put(rows: Any, row: Any, i: Any) -> Any:
    return lax.dynamic_update_index_in_dim(rows, row, i, 0)


def delay_line(rows: Any, h: Any, xs: Any) -> Any:
    """The row of some steps ago is read, then overwritten."""

    def step(carry: Any, x: Any) -> Any:
        rows, i, h = carry
        old = rows[i % len(rows)]
        return (put(rows, jnp.tanh(x + h), i % len(rows)), i + 1, jnp.tanh(0.9 * old + x)), h

    return lax.scan(step, (rows, 0, h), xs)


def before_and_after(rows: Any, h: Any, xs: Any) -> Any:
    """Rows are read before and after the update: the same place, another, and one that is data."""

    def step(carry: Any, x: Any) -> Any:
        rows, i, h = carry
        n = len(rows)
        at = jnp.abs(h.sum() * 100).astype(jnp.int32) % n
        old = rows[at] + rows[(i * 7) % n]
        rows = put(rows, jnp.tanh(x + h) + rows[i % n], i % n)
        return (rows, i + 1, jnp.tanh(0.5 * old + rows[i % n] + rows[(i * 3) % n])), old

    return lax.scan(step, (rows, 0, h), xs)


def outside(rows: Any, h: Any, xs: Any) -> Any:
    """Starts before the first row and behind the last: HLO clamps them."""

    def step(carry: Any, x: Any) -> Any:
        rows, i, h = carry
        old = lax.dynamic_slice(rows, (5 * i - 60, 0), (2, rows.shape[1]))
        rows = lax.dynamic_update_slice(rows, old * 0.5 + x, (5 * i - 50, 0))
        return (rows, i + 1, h + old[1]), None

    return lax.scan(step, (rows, 0, h), xs)[0]


def windows(rows: Any, h: Any, xs: Any) -> Any:
    """A window of two dimensions, both of whose starts are data, of an array of three."""

    def step(carry: Any, x: Any) -> Any:
        cube, i, h = carry
        j = jnp.abs(x[0] * 10).astype(jnp.int32)
        old = lax.dynamic_slice(cube, (i % 8, j, 1), (1, 2, 3))
        cube = lax.dynamic_update_slice(cube, jnp.sin(old) + h[0], (i % 7, j + 1, 2))
        return (cube, i + 1, h + old.sum()), None

    cube = jnp.tile(rows[:8, None, :], (1, 12, 1))
    return lax.scan(step, (cube, 0, h), xs)[0]


def change(rows: Any, h: Any, xs: Any) -> Any:
    """Ways to change an amount: a table whose next entry is made of two earlier ones."""
    del rows, h, xs
    coins = jnp.array([1, 2, 5, 10], jnp.int32)

    def step(k: Any, ways: Any) -> Any:
        coin, amount = coins[k // 50], k % 50 + 1
        before = jnp.where(amount >= coin, ways[jnp.maximum(amount - coin, 0)], 0)
        return ways.at[amount].add(before)

    return lax.fori_loop(0, 200, step, jnp.zeros(51, jnp.int32).at[0].set(1))


def two_buffers(rows: Any, h: Any, xs: Any) -> Any:
    """Each is written from what the other holds."""

    def step(carry: Any, x: Any) -> Any:
        a, b, i = carry
        n = len(a)
        old_a, old_b = a[(i + 1) % n], b[(i + 2) % n]
        return (put(a, old_b + x, i % n), put(b, old_a * 0.5, i % n), i + 1), old_a - old_b

    return lax.scan(step, (rows, rows[::-1], 0), xs)


def until_full(rows: Any, h: Any, xs: Any) -> Any:
    """A loop of unknown length."""

    def body(carry: Any) -> Any:
        rows, i, total = carry
        old = rows[(i * 5) % len(rows)]
        return put(rows, jnp.tanh(old + 1), i % len(rows)), i + 1, total + jnp.abs(old).sum()

    return lax.while_loop(lambda c: c[2] < 60, body, (rows, 0, jnp.float32(0)))


def later_from_new(rows: Any, h: Any, xs: Any) -> Any:
    """Where the old array is read depends on the new one: it cannot be overwritten yet."""

    def step(carry: Any, x: Any) -> Any:
        rows, i, h = carry
        n = len(rows)
        new = put(rows, jnp.tanh(x + h), i % n)
        at = jnp.abs(new[(i + 1) % n].sum() * 100).astype(jnp.int32) % n
        return (new, i + 1, jnp.tanh(rows[at])), None

    return lax.scan(step, (rows, 0, h), xs)[0]


def all_of_it(rows: Any, h: Any, xs: Any) -> Any:
    """All of the old array is read as well."""

    def step(carry: Any, x: Any) -> Any:
        rows, i, h = carry
        return (put(rows, x + h, i % len(rows)), i + 1, jnp.tanh(rows.mean(0) + x)), None

    return lax.scan(step, (rows, 0, h), xs)[0]


PROGRAMS = (
    delay_line,
    before_and_after,
    outside,
    windows,
    change,
    two_buffers,
    until_full,
    later_from_new,
    all_of_it,
)


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results(program: Function, device: str) -> None:
    """A row that is read after it was overwritten, or not overwritten where it should be."""
    if device != "cpu" and not cuda_plugin_installed():
        pytest.skip("plans for a GPU")
    assert_equals_xla(program, (array(64, 6), array(6), array(STEPS, 6)), device)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, jnp.bfloat16, np.int32, np.int8])
def test_types(dtype: Any) -> None:
    """Elements that are kept in another width than they have in memory."""

    def run(rows: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            rows, i = carry
            old = rows[(i * 3) % 40]
            return (put(rows, old + x, i % 40), i + 1), old

        return lax.scan(step, (rows, 0), xs)

    with jax.enable_x64(True):
        args = jnp.asarray(array(40, 5) * 4).astype(dtype), jnp.asarray(array(30, 5) * 4).astype(dtype)
        assert_equals_xla(run, args, "cpu")


def test_batches_and_gradients() -> None:
    """Several buffers by ``vmap``, and the derivative, whose loops write rows of another kind."""
    args = array(3, 32, 6), array(3, 6), array(3, 12, 6)
    assert_equals_xla(jax.vmap(delay_line), args, "cpu")

    def total(*args: Any) -> Any:
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(delay_line(*args)) if leaf.dtype == jnp.float32)

    assert_equals_xla(jax.grad(total, (0, 1, 2)), (array(32, 6), array(6), array(12, 6)), "cpu")


@pytest.mark.parametrize("program", [delay_line, before_and_after, two_buffers])
def test_no_step_goes_over_the_whole_array(program: Function) -> None:
    """XLA copies an array that is read and then updated, in each step: 8 ms for 500 steps in place of 0.08."""
    shapes = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((10_000, 8), (8,), (500, 8))]
    plan = stitch_jit(program).plan(*shapes)
    (loop,) = (k for k in plan.kernels if "// a loop of" in k.source)
    steps = loop.source[loop.source.index("for (index step") :]
    steps = steps[: steps.index("\n    }\n")]
    assert "80000" not in steps and plan.launches < plan.xla_launches


def test_a_buffer_larger_than_the_cache_is_left_to_xla() -> None:
    """A team's own copy of it, in memory that its thread keeps for as long as the process runs."""
    shapes = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((8_000_000, 8), (8,), (20, 8))]
    plan = stitch_jit(delay_line).plan(*shapes, device="zen4")
    assert not [k for k in plan.kernels if "// a loop of" in k.source]


def test_loops_in_a_loop() -> None:
    """An inner loop that updates its array in place, in each step of an outer one."""

    def outer(rows: Any, x: Any) -> Any:
        rows = lax.fori_loop(0, 60, lambda j, r: r.at[j % 50].set(r[(j * 3) % 50] * 0.5 + x), rows)
        return rows, rows.sum()

    assert_equals_xla(lambda rows, xs: lax.scan(outer, rows, xs), (array(50, 4), array(12)), "cpu")


def test_a_donated_buffer() -> None:
    """The loop's own memory, and the result in the argument's."""
    args = array(64, 6), array(6), array(STEPS, 6)
    expected = jax.jit(delay_line)(*args)
    found = stitch_jit(delay_line, mode="now", donate_argnums=0)(jnp.asarray(args[0]), *args[1:])
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
