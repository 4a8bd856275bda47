"""Values that a team of one thread caches so as not to compute them again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit

SPINS = np.random.default_rng(0).integers(-1, 2, (40, 48)).astype(np.int32)
ODDS = np.random.default_rng(1).uniform(size=(20, 40, 48)).astype(np.float32)


def flipped(s: Any, x: Any) -> Any:
    """Integers that a step makes, of which it takes two sums and its neighbours' product."""
    s = jnp.where(x < jnp.exp(-0.1 * jnp.abs(s)), -s, s + (x > 0.9)) % 7
    return s, (s.sum(), (s * s).sum(), (s * jnp.roll(s, 1, 0)).sum())


def looked_up(s: Any, x: Any) -> Any:
    """Integers that are places of a table, and those alone."""
    places = (s * 3 + 5) % 11
    s = jnp.where(x[:11].mean() > 0.5, places, s)
    return s, (jnp.take(x[0], places).sum(), jnp.take(x[1], places).sum())


def loop(step: Any, dtype: Any, s: Any, xs: Any) -> Any:
    return jax.lax.scan(step, s.astype(dtype), xs)


@pytest.mark.usefixtures("zen4")
def test_integers_are_computed_once() -> None:
    """Catches that each sum of a step computes its new state again, as no values but floats were cached."""
    (kernel,) = stitch_jit(lambda s, xs: loop(flipped, jnp.int32, s, xs)).plan(SPINS, ODDS).kernels
    assert kernel.source.count("st::exp(") == kernel.source.count("st::remainder(") == 1


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.int16, jnp.uint8, jnp.float32])
@pytest.mark.parametrize("step", [flipped, looked_up])
def test_values(step: Any, dtype: Any) -> None:
    def run(s: Any, xs: Any) -> Any:
        return loop(step, jnp.int32 if step is looked_up else dtype, s, xs)

    expected = jax.jit(run)(np.abs(SPINS), ODDS)
    for found, e in zip(
        jax.tree.leaves(jax.jit(stitch(run))(np.abs(SPINS), ODDS)), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(found, e, 1e-5)
