"""Sums along loops' iterations whose terms do not fill a CPU's vectors."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import capture
from jax_stitch.loops.cost import team_cost
from jax_stitch.pipeline import stitch_capture
from tests.fusion import forced

CPU = devices.get("haswell")  # Vectors of eight floats.


def whole(seed: int, *dims: int) -> Any:
    """Return small whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, dims).astype(np.float32)


def rule(w: Any, x: Any) -> Any:
    """Add a row where its product with the state is not positive: the perceptron's rule."""
    value = jnp.dot(w, x)
    return jnp.where(value <= 0, w + x, w - 1), value


def extremes(w: Any, x: Any) -> Any:
    """Take several reductions of one row, one of them of whole numbers."""
    high, low, count = jnp.max(w * x), jnp.min(w + x), jnp.sum(w > x)
    return jnp.clip(w + high - low, -9, 9) - count, (high, low, count)


@pytest.mark.parametrize("length", [13, 15, 23, 100])
@pytest.mark.parametrize("step", [rule, extremes])
def test_terms_after_the_last_whole_vector_count_once(step: Any, length: int) -> None:
    """Catches terms that are lost, or counted twice, between the vectors and the rest; and a rest that combines with
    the vectors' sum by another function than its own.
    """

    def run(w: Any, xs: Any) -> Any:
        return jax.lax.scan(step, w, xs)

    args = jnp.asarray(whole(0, length)), jnp.asarray(whole(1, 40, length))
    with mock.patch.multiple(team_cost, team_seconds=lambda *_: 0.0, CALL_SECONDS=0.0):
        stitched = stitch_capture(capture(run, args, CPU), CPU)
    (kernel,) = stitched.kernels
    text = kernel.source.text
    assert "ST_STEPS_FROM" in text and "ST_COMBINE_REST" in text, text
    expected = jax.tree.leaves(jax.jit(run)(*args))
    for got, wanted in zip(forced.run(stitched, args), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
