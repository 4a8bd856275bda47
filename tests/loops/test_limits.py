"""Loops at the edge of what there is to do, and loops that stay with XLA, with the reason."""

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
from tests.loops.agreement import assert_equals_xla, loops_of

T = 23
RNG = np.random.default_rng(0)


def normal(*shape: int) -> jax.Array:
    return jax.device_put(RNG.standard_normal(shape).astype(np.float32) * 0.1)


@pytest.mark.parametrize(("batch", "steps"), [(0, T), (37, 0), (0, 0), (37, 1), (1, T), (1, 1)])
def test_few_rows_and_few_steps(batch: int, steps: int) -> None:
    """No row, no step, one of them: what is written must be what the loop starts with, or nothing."""

    def run(x: Any, xs: Any) -> Any:
        return lax.scan(lambda c, v: (c * 0.9 + v, c), x, xs)

    assert_equals_xla(run, (normal(batch), normal(steps, batch)), "cpu")


def test_condition_false_at_first() -> None:
    """A body that runs once before its condition is looked at."""

    def run(x: Any, n: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + 1), (0, x))

    for n in (0, -3, 1):
        assert_equals_xla(run, (normal(37), jnp.int32(n)), "cpu")


def test_more_trips_than_32_bits_count() -> None:
    """A step that wraps around: the loop would never end, or never begin."""
    with jax.enable_x64(True):
        limit = 2**31 + 8

        def all_of_them(x: Any) -> Any:
            return lax.fori_loop(0, limit, lambda i, x: x * 3 + i.astype(jnp.uint32), x)

        def the_last(x: Any, first: Any) -> Any:
            return lax.while_loop(
                lambda c: c[0] < limit, lambda c: (c[0] + 1, c[1] * 3 + c[0].astype(jnp.uint32)), (first, x)
            )

        x = jnp.arange(5, dtype=jnp.uint32)
        plan, loops = loops_of(all_of_them, (x,))
        source = plan.kernels[0].source
        assert loops == 1 and "using index = int64_t" in source and f"step < {limit}" in source
        assert_equals_xla(the_last, (x, jnp.int64(2**31 - 6)), "cpu")
        assert_equals_xla(the_last, (x, jnp.int64(2**31 - 6)), "h200")


@pytest.mark.slow
def test_runs_more_trips_than_32_bits_count() -> None:
    """All of them, for one number: x -> 3 x + 1, as many times, in closed form."""
    with jax.enable_x64(True):
        limit = 2**31 + 8
        found = stitch_jit(lambda x: lax.fori_loop(0, limit, lambda i, x: x * 3 + 1, x))(jnp.uint32(7))
        power = pow(3, limit, 2**33)
        assert int(found) == (7 * power + (power - 1) // 2) % 2**32


def test_a_loop_of_unknown_length_has_no_other_end() -> None:
    """A limit on the number of steps that the user did not ask for."""

    def run(x: Any) -> Any:
        return lax.while_loop(lambda x: x > 0, lambda x: x + 1, x)

    plan, loops = loops_of(run, (jnp.float32(1),))
    (kernel,) = plan.kernels
    assert loops == 1 and "for (;;)" in kernel.source and kernel.source.count("break;") == 1


def sorted_each_step(x: Any) -> Any:
    return lax.fori_loop(0, T, lambda i, x: jnp.sort(x * 0.9) + jnp.tanh(x), x)


def convolved(x: Any) -> Any:
    kernel = jnp.ones((1, 1, 3), jnp.float32) / 3
    return lax.fori_loop(0, T, lambda i, x: lax.conv(x, kernel, (1,), "SAME") * 0.9 + jnp.tanh(x), x)


STAYS: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "sort": (sorted_each_step, normal(1000), "sort"),
    "convolution": (convolved, normal(1, 1, 1000), "convolution"),
}


@pytest.mark.parametrize("name", STAYS)
def test_stays_with_xla_and_says_why(name: str) -> None:
    """Operations lost that a kernel cannot hold; or a plan that leaves its reader to guess."""
    function, x, words = STAYS[name]
    plan, loops = loops_of(function, (x,))
    assert loops == 0
    reasons = [b.reason for b in plan.boundaries if b.op == "while"]
    assert any(words in reason for reason in reasons), reasons
    np.testing.assert_allclose(stitch_jit(function)(x), jax.jit(function)(x), rtol=1e-5, atol=1e-6)


def test_rows_that_need_each_other_do_not_run_apart() -> None:
    """A mean over the batch, taken of a thread's own row."""

    def run(x: Any) -> Any:
        return lax.scan(lambda x, _: (x * 0.9 + x.mean() * 0.1, None), x, None, length=T)[0]

    x = normal(1000)
    plan, _ = loops_of(run, (x,))
    assert not any("rows, one thread each" in k.source for k in plan.kernels)
    np.testing.assert_allclose(stitch_jit(run)(x), jax.jit(run)(x), rtol=1e-5, atol=1e-6)


def test_body_of_a_loop_that_stays_is_stitched() -> None:
    """All of a loop lost for one operation in it."""

    def run(x: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            y = jnp.sort(x, -1)
            return (y - y.mean(-1, keepdims=True)) * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)

        return lax.fori_loop(0, 3, step, x)

    x = normal(256, 4096)
    plan, loops = loops_of(run, (x,))
    assert loops == 0 and any(k.launches == 3 for k in plan.kernels), str(plan)
    few = stitch_jit(run).plan(x[:2, :200])  # On a CPU, where all of it stays in the cache, XLA's calls cost less.
    assert not few.kernels and any("stay in the cache" in b.reason for b in few.boundaries)
    np.testing.assert_allclose(stitch_jit(run)(x), jax.jit(run)(x), rtol=1e-3, atol=1e-3)


def test_what_a_loop_stacks_does_not_take_its_values_out_of_the_cache() -> None:
    """A stack larger than the cache, of which an iteration writes a slice; what each makes anew is small."""

    def run(x: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            y = jnp.sort(x, -1)
            y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
            return y, y

        return lax.scan(step, x, None, length=5000)

    plan = stitch_jit(run).plan(jax.ShapeDtypeStruct((8, 200), jnp.float32), device="cpu")
    assert not plan.kernels and any("stay in the cache" in b.reason for b in plan.boundaries)


def large_convolution(x: Any) -> Any:
    kernel = jnp.full((32, 32, 3, 3), 0.01, jnp.float32)
    return lax.fori_loop(0, T, lambda i, x: jax.nn.softmax(lax.conv(x, kernel, (1, 1), "SAME")) + jnp.tanh(x), x)


def large_sort(x: Any) -> Any:
    return lax.fori_loop(0, T, lambda i, x: jax.nn.softmax(jnp.sort(x * 0.9)) + jnp.tanh(x), x)


def large_product(x: Any) -> Any:
    """Every row of the next step needs all of this one's, more than the blocks that run together could do."""
    return lax.fori_loop(0, T, lambda i, x: jax.nn.softmax(x @ x) + jnp.tanh(x), x)


LARGE: dict[str, tuple[Callable[..., Any], tuple[int, ...], str]] = {
    "convolution": (large_convolution, (8, 32, 64, 64), "convolution"),
    "sort": (large_sort, (64, 65536), "sort"),
    "product": (large_product, (2048, 2048), "faster as XLA's kernels"),
}


@pytest.mark.skipif(not cuda_plugin_installed(), reason="needs the CUDA plugin, to compile for a described GPU")
@pytest.mark.parametrize("name", LARGE)
def test_large_loops_on_the_h200_stay_and_their_bodies_are_stitched(name: str) -> None:
    """A whole loop in a kernel that takes ten times as long; or nothing stitched for the sake of one operation."""
    function, shape, words = LARGE[name]
    plan = stitch_jit(function).plan(jax.ShapeDtypeStruct(shape, jnp.float32), device="h200")
    assert not any("// a loop of" in k.source for k in plan.kernels)
    assert any(k.launches == T for k in plan.kernels), str(plan)
    # Where a kernel of ours counts, XLA asks the device after each step whether to go on.
    assert not plan.stitched_traffic.unknown_trips
    reasons = [b.reason for b in plan.boundaries if b.op == "while"]
    assert any(words in reason for reason in reasons), reasons


def test_a_callback_in_the_body() -> None:
    """A callback lost, or called another number of times; a reason that does not name it; all of the body lost."""
    seen: list[float] = []

    def look(x: Any) -> Any:
        seen.append(float(np.asarray(x).sum()))
        return np.asarray(x) * np.float32(0.5)

    def run(x: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            y = jnp.tanh(jax.pure_callback(look, jax.ShapeDtypeStruct(x.shape, x.dtype), x)) + 0.1 * x
            return (y - y.mean(-1, keepdims=True)) * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)

        return lax.fori_loop(0, 3, step, x)

    x = normal(256, 4096)
    stitched = stitch_jit(run)
    found = np.asarray(stitched(x))
    assert len(seen) == 3
    np.testing.assert_allclose(found, jax.jit(run)(x), rtol=1e-3, atol=1e-3)
    plan = stitched.plan(x)
    assert any(k.launches == 3 for k in plan.kernels), str(plan)
    (reason,) = (b.reason for b in plan.boundaries if b.op == "while")
    assert "calls back to Python" in reason and "test_limits.py:" in reason


@pytest.mark.parametrize(("hidden", "ways"), [(8, "rows, one thread each"), (32, "teams of 1 threads")])
@pytest.mark.usefixtures("zen4")
def test_long_products_of_a_few_rows_are_written_out_only_where_they_are_few(hidden: int, ways: str) -> None:
    """Rows in vectors had 512 products of a step written out, which kept a compiler busy for twice as long as a team's
    loops, and ran for longer.
    """

    def solve(y: Any, w: Any, v: Any) -> Any:
        def f(y: Any) -> Any:
            return jnp.tanh(y @ w) @ v

        def step(y: Any, _: Any) -> Any:
            k = f(y)
            return y + 0.1 * (k + f(y + 0.5 * k) + f(y - 0.5 * k) + f(y * 0.5)), None

        return lax.scan(step, y, None, length=20)[0]

    shapes = (16, 4), (4, hidden), (hidden, 4)
    args = tuple(jnp.asarray(np.random.default_rng(k).standard_normal(s), jnp.float32) for k, s in enumerate(shapes))
    plan, loops = loops_of(solve, args)
    assert loops == 1
    assert any(ways in k.source for k in plan.kernels), str(plan)
    assert_equals_xla(solve, args, "cpu")
