"""Loops inside a loop of a team written out, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices
from jax_stitch.frontend.capture import capture
from jax_stitch.graph import build, verify
from jax_stitch.loops.rewrites.written_out import MOST_TRIPS, with_inner_loops_written_out
from jax_stitch.loops.teams import team_choice
from jax_stitch.pipeline import stitch_capture
from tests.kernel.agreement import assert_close, interpreted

CPU = devices.get("cpu")


def normal(seed: int, *dims: int) -> Any:
    return np.random.default_rng(seed).standard_normal(dims)


def solved(x: Any, currents: Any) -> Any:
    """A tridiagonal solve in each step: forwards, and from the end back."""

    def solve(right: Any) -> Any:
        zero = jnp.zeros((), right.dtype)

        def forward(carry: Any, d: Any) -> Any:
            w = 1 / (1.5 + 0.25 * carry[0])
            after = -0.25 * w, (d + 0.25 * carry[1]) * w
            return after, after

        _, (cs, ds) = jax.lax.scan(forward, (zero, zero), right)
        return jax.lax.scan(lambda x, at: (at[1] - at[0] * x,) * 2, zero, (cs, ds), reverse=True)[1]

    def step(x: Any, current: Any) -> Any:
        x = solve(jnp.tanh(x) + current * jnp.arange(x.size))
        return x, (x[-1], x.sum())

    return jax.lax.scan(step, x, currents)


def stacked_in_the_middle(x: Any, w: Any) -> Any:
    """Slices of two dimensions, at the second of which nothing moves; what is carried is not what is stacked."""

    def turn(w: Any, _: Any) -> Any:
        def see(w: Any, row: Any) -> Any:
            change = jnp.where(row @ w > 0, row, -row) * 0.1
            return w + change, jnp.stack([change, w])

        w, seen = jax.lax.scan(see, w, x)
        return w, seen.max(0)

    return jax.lax.scan(turn, w, None, length=7)


def counted(x: Any) -> Any:
    """The counter picks what is read and is part of what is computed; a value is picked by data as well."""

    def step(x: Any, _: Any) -> Any:
        def add(k: Any, carry: Any) -> Any:
            total, at = carry
            here = x[at] * k + x[x.size - k]
            return total + here, (at + 2) % x.size

        total, at = jax.lax.fori_loop(1, 13, add, (jnp.zeros((), x.dtype), 3))
        return x * 0.5 + jnp.tanh(total), at

    return jax.lax.scan(step, x, None, length=40)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solved": (solved, (normal(0, 12), normal(1, 9))),
    "stacked_in_the_middle": (stacked_in_the_middle, (normal(0, 10, 5), normal(1, 5))),
    "counted": (counted, (normal(0, 14),)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_a_loop_with_loops_agrees(name: str, dtype: str) -> None:
    """Steps in the wrong order, a slice at the wrong place, a counter that is one off."""
    function, numbers = CASES[name]
    with jax.enable_x64(dtype == "float64"):
        args = jax.tree.map(lambda x: jnp.asarray(x, dtype), numbers)
        # Whether or not it pays, and in teams.
        alone = mock.patch("jax_stitch.loops.loop_patterns._is_faster_in_teams", lambda *_: True)
        with mock.patch.object(team_choice, "is_worth", lambda *_: True), alone:
            made = stitch_capture(capture(function, args, CPU), CPU)
        teams = [p.team.loop for k in made.kernels for p in k.scheduled.parts if p.team is not None]
        assert [t.trips for t in teams if t.carried], str(made.plan)
        want = [np.asarray(r) for r in jax.tree.leaves(jax.jit(function)(*args))]
        leaves = jax.tree.leaves(args)
        assert_close(interpreted(made, leaves), want, f"{name} by the interpreter")
        assert_close([np.asarray(r) for r in made.compile("host")(leaves)], want, name)


def test_long_and_large_loops_stay() -> None:
    """Written out, they would keep a compiler busy, or are better done by a loop."""

    def nested(trips: int, size: int) -> tuple[Any, Any]:
        def function(x: Any) -> Any:
            def step(x: Any, _: Any) -> Any:
                return jax.lax.fori_loop(0, trips, lambda _, x: jnp.sin(x) + x[0], x), x[0]

            return jax.lax.scan(step, x, None, length=20)

        graph = build(hlo_parser.parse(capture(function, [normal(0, size).astype(np.float32)], CPU).text))
        (loop,) = [n.id for n in graph.nodes if n.op == "while"]
        changed = with_inner_loops_written_out(graph, loop)
        verify(changed)
        return graph, changed

    same, changed = nested(40, 8)
    assert changed is not same
    assert not any(
        n.op == "while" for n in changed[next(n.id for n in changed.nodes if n.op == "while")].graphs["body"].nodes
    )
    for trips, size in ((MOST_TRIPS + 1, 8), (40, 1000)):
        same, changed = nested(trips, size)
        assert changed is same
