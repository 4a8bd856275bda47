"""What a C++ compiler is given of large loops and of many small arrays: its time grows with the square of a body."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy.special import logsumexp

from jax_stitch import stitch_jit
from jax_stitch.kernel import outlined
from jax_stitch.loops.teams.sweep_planner import MOST_WRITES

Function = Callable[..., Any]
RNG = np.random.default_rng(7)


def array(*dims: int, dtype: str = "float32") -> Any:
    return RNG.random(dims).astype(dtype)


def sinkhorn(cost: Any) -> Any:
    """Ten steps in the logarithmic domain, of one problem."""

    def step(carry: Any, _: Any) -> Any:
        h = carry[1]
        f = -jnp.log(20.0) - logsumexp(h[None] - cost, 1)
        return (f, -jnp.log(24.0) - logsumexp(f[:, None] - cost, 0)), None

    start = jnp.zeros(cost.shape[0], cost.dtype), jnp.zeros(cost.shape[1], cost.dtype)
    return lax.scan(step, start, None, length=10)[0]


def scaling(kernel: Any) -> Any:
    """Sinkhorn with exponentials of each element in each step."""
    start = jnp.ones(kernel.shape[0], kernel.dtype)
    return lax.fori_loop(0, 5, lambda i, u: 1 / jnp.sum(jnp.exp(-kernel) * (u / u.sum())[:, None], 1), start)


def pairs(x: Any) -> Any:
    """A force of each pair."""
    return lax.fori_loop(0, 4, lambda i, x: x + 0.01 * jnp.sum(jnp.tanh(x[:, None] - x[None]), 1), x)


def until(x: Any) -> Any:
    """A loop of unknown length with a function of each pair."""
    return lax.while_loop(
        lambda x: jnp.max(x) > 0.1, lambda x: jnp.mean(jnp.sin(jnp.outer(x, x)) * 0.5, 1) * x, x * 0.5
    )


@pytest.mark.parametrize(
    ("one", "args"),
    [
        (sinkhorn, (array(16, 20, 24),)),
        (sinkhorn, (array(8, 18, 18, dtype="float64"),)),
        (scaling, (array(16, 24, 24),)),
        (pairs, (array(64, 32),)),
        (until, (array(16, 30),)),
    ],
)
def test_the_text_of_a_row_is_bounded(one: Function, args: tuple[Any, ...]) -> None:
    """Loops of which each row was written out in up to 8,000 statements: minutes, then the compiler was stopped."""
    function = jax.vmap(one)
    with jax.enable_x64(True):
        plan = stitch_jit(function).plan(*args)
        assert all(kernel.source.count("\n") < 1500 for kernel in plan.kernels)
        found, expected = stitch_jit(function, mode="now")(*args), jax.jit(function)(*args)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def each_and_sums(xs: Any) -> Any:
    return [jnp.tanh(x * 2) + xs[0] for x in xs], sum(jnp.sum(x) for x in xs)


def norms(xs: Any) -> Any:
    """What a clipped step does: all norms, then each array by their sum."""
    total = jnp.sqrt(sum(jnp.sum(x * x) for x in xs))
    return [x / jnp.maximum(total, 1.0) for x in xs]


def spreads(xs: Any) -> Any:
    """Two reductions of each array, the second of what the first leaves, and values made of both."""
    return [(x - x.mean()) / jnp.sqrt(jnp.var(x) + 1e-5) for x in xs], [x.max() - x.min() for x in xs]


def largest(xs: Any) -> Any:
    """Reductions with two results."""
    return [x.argmax() for x in xs], [jnp.exp(x - x.max()) for x in xs]


def chained(xs: Any) -> Any:
    """Sums each of which reads the one before it."""
    total, sums = jnp.float32(0), []
    for x in xs:
        total = jnp.sum(jnp.exp(-x * total))
        sums.append(total)
    return sums


@pytest.mark.parametrize("function", [each_and_sums, norms, spreads, largest, chained])
def test_many_small_arrays(function: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    """One body for all of them: 160 arrays took 80 seconds. A sweep that is divided may read what is not yet there."""
    monkeypatch.setattr(outlined, "LONG", 50)
    xs = [array(7) + k for k in range(MOST_WRITES + 8)]
    found, expected = stitch_jit(function, mode="now")(xs), jax.jit(function)(xs)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_no_sweep_and_no_function_grows_with_their_number() -> None:
    """Sweeps of more values than registers hold, or all sweeps in one function."""
    (kernel,) = stitch_jit(each_and_sums).plan([array(7) + k for k in range(150)]).kernels
    functions = re.split(r"ST_APART", kernel.source)[1:]
    assert len(functions) >= 8
    assert all(len(re.findall(r" out_\w+\[j\] = ", text)) <= MOST_WRITES for text in functions)


def recurrent(x: Any, w: Any) -> Any:
    """A loop in teams: carried values, products and stacked results."""

    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h]) @ w, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (jnp.zeros(16), jnp.zeros(16)), x)


def test_sweeps_of_a_loop_as_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function for a sweep that sees an array of the step before, or does not write what it should."""
    monkeypatch.setattr(outlined, "LONG", 0)
    args = array(12, 8), array(24, 64) - 0.5
    found, expected = stitch_jit(recurrent, mode="now")(*args), jax.jit(recurrent)(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert any("ST_APART" in k.source for k in stitch_jit(recurrent).plan(*args).kernels)
