"""Maxima and minima over rows in loops on a CPU, whose chains of steps are longer than those of additions."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import capture
from jax_stitch.loops.cost import team_cost
from jax_stitch.pipeline import Stitched, stitch_capture
from tests.fusion import forced

CPU = devices.get("zen4")
STATES, ACTIONS, LEVELS = 24, 5, 48


def best_choices(reduce: Any) -> Any:
    """Return a loop that takes the best of a grid of choices for each state, as value iteration does."""

    def run(gain: Any) -> Any:
        def step(value: Any, _: Any) -> Any:
            return reduce(gain + 0.5 * value.T[None, ::-1], axis=2), None

        return jax.lax.scan(step, jnp.zeros((LEVELS, ACTIONS)), None, length=5)[0]

    return run


def planned(reduce: Any, gain: Any) -> Stitched:
    with mock.patch.multiple(team_cost, team_seconds=lambda *_: 0.0, CALL_SECONDS=0.0):
        return stitch_capture(capture(best_choices(reduce), (gain,), CPU), CPU)


def gains() -> Any:
    gain = np.random.default_rng(0).integers(-8, 9, (LEVELS, ACTIONS, LEVELS)).astype(np.float32)
    gain[2, 1, 7] = np.nan
    return jnp.asarray(gain)


@pytest.mark.parametrize("reduce", [jnp.max, jnp.min])
def test_chains_of_extrema_go_side_by_side(reduce: Any) -> None:
    """Catches one chain at a time, which waits for each step, and values of one row in another."""
    made = planned(reduce, gains())
    (text,) = (k.source.text for k in made.kernels)
    assert len(set(re.findall(r"ST_SPLIT\(\w+::T, (\w+),", text))) >= 4, text
    (got,) = forced.run(made, [gains()])
    value = np.zeros((LEVELS, ACTIONS), np.float32)
    for _ in range(5):  # By NumPy: XLA:CPU loses the NaN.
        value = getattr(np, reduce.__name__)(np.asarray(gains()) + np.float32(0.5) * value.T[None, ::-1], axis=2)
    np.testing.assert_array_equal(got, value)
