"""Loops in one team whose steps write into small arrays that they carry; and those that XLA compiles as one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, graph, stitch_jit
from jax_stitch.frontend.capture import capture
from jax_stitch.graph.model import ONE_KERNEL
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.teams import team_choice
from jax_stitch.loops.thread_loops import ThreadLoops
from tests.loops.agreement import assert_equals_xla

RNG = np.random.default_rng(5)
N = 24
M = RNG.standard_normal((N, N)).astype(np.float32)
SPD = M @ M.T + N * np.eye(N, dtype=np.float32)
V = RNG.standard_normal(N).astype(np.float32)
loop = jax.lax.fori_loop


def cholesky(a: Any) -> Any:
    """A column in each step, of all columns before."""

    def column(j: Any, low: Any) -> Any:
        v = a[:, j] - low @ low[j]
        return low.at[:, j].set(jnp.where(jnp.arange(N) >= j, v / jnp.sqrt(v[j]), 0))

    return loop(0, N, column, jnp.zeros_like(a))


def logged(x: Any) -> Any:
    def step(i: Any, s: Any) -> Any:
        slope = jnp.cos(s[0]) * s[0]
        return s[0] - 0.1 * slope, s[1].at[i].set((slope * slope).sum())

    return loop(0, 50, step, (x, jnp.zeros(50)))


def backward(x: Any) -> Any:
    """From the last place on, and what is written is read in the next step."""

    def step(i: Any, y: Any) -> Any:
        return y.at[N - 1 - i].set(0.5 * y[(N - i) % N] + y.sum() * 0.01 + x[N - 1 - i])

    return loop(0, N, step, x * 0)


def blocks(x: Any) -> Any:
    """Several elements at a place that is data, which XLA clamps."""

    def step(i: Any, y: Any) -> Any:
        at = (y.sum() * 7).astype(jnp.int32) + 5 * i - 9
        return jax.lax.dynamic_update_slice(y, jnp.tanh(y[:5]) + i, (at,)) * 0.99

    return loop(0, 12, step, x)


def twice(x: Any) -> Any:
    """Two arrays, one written into the other's slice; what was there before is read too."""

    def step(i: Any, s: Any) -> Any:
        a, b = s
        return a.at[i, 1:4].add(b[i] + a.sum()), b.at[N - 1 - i].multiply(a[i].mean() + 1)

    return loop(0, 9, step, (jnp.outer(x, x), x))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cholesky": (cholesky, (SPD,)),
    "logged": (logged, (np.tile(V, 4),)),
    "backward": (backward, (V,)),
    "blocks": (blocks, (np.tile(V, 4),)),
    "twice": (twice, (V * 0.1,)),
}


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", CASES)
def test_equals_xla(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An element written at another place, or read after it was written where the old one is meant."""
    monkeypatch.setattr(loop_patterns, "thread_loops", lambda *_: ThreadLoops((), {}))
    function, args = CASES[name]
    assert_equals_xla(function, args, device)


@pytest.mark.parametrize("name", ["cholesky", "logged"])
def test_is_one_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not it is faster than XLA's, which newer versions compile as one kernel too."""
    monkeypatch.setattr(team_choice, "is_worth", lambda *_: True)
    function, args = CASES[name]
    plan = stitch_jit(function).plan(*args)
    assert any("// a loop of" in k.source for k in plan.kernels)
    assert not [b for b in plan.boundaries if b.op == "while"]


def moving_average(x: Any) -> Any:
    """Little in each step, in an array that is large beside it."""
    return loop(1, x.shape[0], lambda i, y: y.at[i].set(0.9 * y[i - 1] + 0.1 * x[i]), x * 1.0)


def test_what_xla_compiles_as_one_kernel_is_known_and_written_in_place() -> None:
    """It was taken for 200 steps of a kernel each, and written whole in each: 64 us where XLA takes 1.4."""
    x = np.ones(200, np.float32)
    made = graph.build(hlo_parser.parse(capture(moving_average, (x,), devices.get("cpu")).text))
    assert [ONE_KERNEL in n.attributes for n in made.nodes if n.op == "while"] == [True]
    for kernel in stitch_jit(moving_average).plan(x).kernels:
        steps = kernel.source[kernel.source.index("for (index step") :]
        assert "200" not in steps[steps.index("{") : steps.index("\n    }\n")]


def test_larger_steps_are_not_one_kernel() -> None:
    """From a size on XLA shares the sums of a step out over its threads, in every version."""

    def normed(x: Any) -> Any:
        return loop(0, 50, lambda i, y: y * 0.9 + y.sum(), x)

    made = graph.build(hlo_parser.parse(capture(normed, (np.ones(1 << 16, np.float32),), devices.get("cpu")).text))
    assert [ONE_KERNEL in n.attributes for n in made.nodes if n.op == "while"] == [False]
