"""Loops in loops, and conditionals, in one kernel of a CPU: a team goes through them as through any of its sweeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.frontend.capture import capture
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.loop_passes import UNROLLING
from jax_stitch.loops.teams import team_choice
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.pipeline import Stitched, stitch_capture
from tests.fusion import forced
from tests.kernel.agreement import interpreted
from tests.loops import nested_programs

lax = jax.lax
X = np.linspace(1.0, 3.0, 5).astype(np.float32)


def made(function: Callable[..., Any], args: tuple[Any, ...]) -> Stitched:
    """All loops in teams, as they are written, whether or not that pays."""
    cpu = devices.get("cpu")
    with ExitStack() as patches:
        for patch in (
            mock.patch.object(loop_patterns, "thread_loops", lambda *_: ThreadLoops((), {})),
            mock.patch.object(UNROLLING["unroll-inner-loops"], "needs", lambda _: False),
            mock.patch.object(team_choice, "is_worth", lambda *_: True),
        ):
            patches.enter_context(patch)
        return stitch_capture(capture(function, args, cpu), cpu)


def assert_right(function: Callable[..., Any], args: tuple[Any, ...], inner: int | None = None) -> None:
    """XLA's results by the kernel compiled and interpreted, and in it so many loops in loops."""
    stitched = made(function, args)
    teams = [p.team for k in stitched.kernels for p in k.scheduled.parts if p.team is not None]
    assert not any(n.op in ("while", "conditional") for n in _left(stitched)), str(stitched.plan)
    if inner is not None:
        assert sum(len(t.inner) for t in teams) == inner
    wanted = [np.asarray(x) for x in jax.tree.leaves(jax.jit(function)(*args))]
    for found in (forced.run(stitched, args), interpreted(stitched, args)):
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=2e-4, atol=2e-5)


def _left(stitched: Stitched) -> list[Any]:
    graph = stitched.plan.graph
    taken = {i for kernel in stitched.plan.kernels for p in kernel for i in p.nodes}
    return [n for n in graph.nodes if n.id not in taken]


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), *range(1, 60)])  # The first is long.
def test_random_nests(seed: int) -> None:
    function, args = nested_programs.program(seed), nested_programs.arguments(seed)
    with jax.debug_nans(False):
        assert_right(function, args)


def newton(x: Any) -> Any:
    """What a loop of unknown length starts from and leaves is the step's own."""

    def step(c: Any, t: Any) -> Any:
        def body(s: Any) -> Any:
            return s[0] - (s[0] * s[0] - c) / (2 * s[0]), s[1] + 1

        root, count = lax.while_loop(
            lambda s: (jnp.abs(s[0] * s[0] - c).max() > 1e-4) & (s[1] < 20), body, (jnp.ones_like(c), 0)
        )
        return root * 0.5 + t + c * 0.1, (root, count)

    return lax.scan(step, x, jnp.arange(6.0) + 1)


def unread(x: Any) -> Any:
    """Nobody reads some of what the loop in the step leaves."""

    def step(c: Any, t: Any) -> Any:
        def body(s: Any, _: Any) -> Any:
            return (jnp.sin(s[0] + t), s[1] * 0.5 + s[0]), (s[0].sum(), s[1])

        (last, _), (sums, _) = lax.scan(body, (c, c), None, length=40)
        return last, sums[1]

    return lax.scan(step, x, jnp.arange(4.0))


def counted(x: Any) -> Any:
    """What counts the steps of the inner loop is read behind it, and reads a table."""

    def step(c: Any, t: Any) -> Any:
        def body(s: Any) -> Any:
            k, z = s
            return k + 2, z + jnp.asarray(np.sin(np.arange(99.0, dtype=np.float32)))[k] * t

        k, z = lax.while_loop(lambda s: s[0] < 80, body, (1, c))
        return z * 0.5 + k, k

    return lax.scan(step, x, jnp.arange(4.0))


def narrow(x: Any) -> Any:
    """Values of small floats, truths and whole numbers are carried in and out."""

    def step(c: Any, t: Any) -> Any:
        def body(s: Any) -> Any:
            half, flag, n, k = s
            half = half * jnp.bfloat16(0.5) + half[::-1] * jnp.bfloat16(0.25) + jnp.bfloat16(0.3)
            return half, flag ^ (half > 1), n + flag.astype(jnp.int32) * k, k + 1

        first = (c.astype(jnp.bfloat16), c > 1.5, jnp.zeros(c.shape, jnp.int32), jnp.int32(0))
        half, flag, n, _ = lax.while_loop(lambda s: s[3] < 30 + t, body, first)
        return jnp.where(flag, half.astype(jnp.float32) * 0.2, c + t), (flag, n)

    return lax.scan(step, x, jnp.arange(4.0))


def swapped(x: Any) -> Any:
    """Two values of the step around change places in the inner loop, of which an odd number of steps is made."""

    def step(c: Any, t: Any) -> Any:
        a, b = lax.fori_loop(0, 33, lambda _, s: (s[1] + t, s[0] * 0.5), (c[0], c[1]))
        return (b, a), a[::-1]

    return lax.scan(step, (x, x[::-1] * 0.3), jnp.arange(4.0))


@pytest.mark.parametrize("function", [newton, unread, counted, narrow, swapped], ids=lambda f: f.__name__)
def test_what_goes_in_and_out(function: Callable[..., Any]) -> None:
    assert_right(function, (X,), inner=1)


def test_a_branch_that_is_not_asked_for_is_not_run() -> None:
    """Its loop would not end."""

    def function(x: Any) -> Any:
        def endless(c: Any) -> Any:
            return lax.while_loop(lambda s: s.sum() > -1, lambda s: s * 0.5 + 1, c)

        def step(c: Any, t: Any) -> Any:
            return lax.cond(t > 100, endless, lambda c: c + t, c), t

        return lax.scan(step, x, jnp.arange(4.0))[0]

    assert_right(function, (X,))


def test_a_filter_with_a_search_in_each_step_is_one_kernel() -> None:
    """By default, and by the estimate of what it saves."""
    plan = stitch_jit(newton).plan(X)
    (kernel,) = plan.kernels
    assert "a loop of 6 steps" in kernel.source and plan.stitched_traffic.launches == 1
