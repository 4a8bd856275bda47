"""Loops whose rows change nothing in some iterations: teams leave these out."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.analysis.patterns.sweeps import Target, guarded_from
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.loops.loop_passes import NORMALISING, Loop, whiles
from jax_stitch.loops.teams import team_choice
from jax_stitch.loops.teams.sweep_planner import barrier_groups
from jax_stitch.loops.teams.team import team_loop
from tests.fusion import forced

CPU = devices.get("haswell")  # Of one core: as many rows to a team as are allowed.

STEPS, ROWS, SIZE = 12, 4, 24


def padded(lengths: Any, xs: Any, w: Any) -> Any:
    """A recurrent net over padded sequences: after its end, a sequence keeps its state."""

    def step(carry: Any, given: Any) -> Any:
        h, c = carry
        t, x = given
        new = jnp.tanh(h @ w + x)
        goes_on = t < lengths
        h = jnp.where(goes_on[:, None], new, h)
        return (h, jnp.where(goes_on[:, None], c + new, c)), None

    start = jnp.zeros((ROWS, SIZE))
    return jax.lax.scan(step, (start, start), (jnp.arange(STEPS), xs))[0]


def differently(lengths: Any, xs: Any, w: Any) -> Any:
    """Two truths: one state goes on longer than the other."""

    def step(carry: Any, given: Any) -> Any:
        h, c = carry
        t, x = given
        new = jnp.tanh(h @ w + x)
        h = jnp.where((t < lengths)[:, None], new, h)
        return (h, jnp.where((t < lengths + 1)[:, None], c + new, c)), None

    start = jnp.zeros((ROWS, SIZE))
    return jax.lax.scan(step, (start, start), (jnp.arange(STEPS), xs))[0]


def alone(lengths: Any, xs: Any, w: Any) -> Any:
    """The truth is all that a step makes before its end."""

    def step(c: Any, given: Any) -> Any:
        t, x = given
        return jnp.where((t < lengths)[:, None], c * 0.5 + x, c), None

    return jax.lax.scan(step, jnp.zeros((ROWS, SIZE)), (jnp.arange(STEPS), xs))[:1]


def arguments() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    lengths = np.array([3, 12, 0, 7], np.int32)
    return lengths, *((0.2 * rng.standard_normal(s)).astype(np.float32) for s in ((STEPS, ROWS, SIZE), (SIZE, SIZE)))


def loop_of(function: Any, most: int) -> TeamLoop:
    graph = NORMALISING.run(Loop(forced.graph_of(function, *arguments()), 0), CPU).graph
    (node,) = whiles(graph)
    return team_loop(graph, node, CPU, most=most)


@pytest.mark.parametrize(
    ("function", "most", "is_guarded"), [(padded, 1, True), (padded, 4, False), (differently, 1, False)]
)
def test_a_truth_of_all_rows_of_a_team_guards_it(function: Any, most: int, is_guarded: bool) -> None:
    """Catches guards of one row for others, and of one value for others."""
    assert (loop_of(function, most).guard is not None) == is_guarded


@pytest.mark.parametrize("function", [padded, alone])
def test_what_a_truth_guards_comes_after_it(function: Any) -> None:
    """The next value was computed beside the truth where nothing else was made: the verifier refused the kernel."""
    loop = loop_of(function, 1)
    groups = barrier_groups(loop)
    before = [w.target for group in groups[: guarded_from(loop, groups)] for sweep in group for w in sweep.writes]
    assert set(before) == {Target.INTERMEDIATE}


@pytest.mark.parametrize("function", [padded, differently, alone])
def test_values_stay(function: Any) -> None:
    """Catches rows that stop too early, and copies that are exchanged although nothing was written."""
    with mock.patch.object(team_choice, "is_worth", return_value=True), mock.patch.object(team_choice, "FEW_ROWS", 1):
        results = stitch_jit(function, mode="now")(*arguments())
    for ours, theirs in zip(results, jax.jit(function)(*arguments()), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)
