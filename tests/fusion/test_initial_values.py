"""Initial values of reductions that are not the neutral one, where kernels reduce in several steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import stitch
from jax_stitch.fusion.rewrites import reductions
from tests.fusion import forced

KINDS: dict[str, tuple[Callable[..., Any], float]] = {
    "max": (lax.max, 3.0),
    "min": (lax.min, -3.0),
    "max of narrow": (lax.max, 3.0),
}


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 2), (1, 4), (2, 2), (4, 1), (3, 33), (2, 64)])
@pytest.mark.parametrize("schedule", ["cpu", "h200"])
def test_they_count(shape: tuple[int, int], kind: str, schedule: str, seed: int | None) -> None:
    """One block's partial results are reduced along a dimension of 1: XLA makes that a reshape, and drops the value."""
    reduce, initial = KINDS[kind]
    dtype = jnp.bfloat16 if "narrow" in kind else jnp.float32
    x = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, shape), dtype)

    def run(x: jax.Array) -> Any:
        start = jnp.asarray(initial, dtype)
        return lax.reduce(x, start, reduce, (0, 1)), jnp.log(jnp.abs(x) + 1)

    with forced.everything_pays(seed):
        found = jax.jit(stitch(run, schedule_device=schedule))(x)
    assert float(found[0]) == initial


def test_no_reduction_over_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reduces the partial results may leave out what has one of them, with its initial value."""
    blocks = []

    def in_two_steps(graph: Any, cross: Any, count: int) -> Any:
        blocks.append(count)
        return made(graph, cross, count)

    made = reductions.in_two_steps
    monkeypatch.setattr(reductions, "in_two_steps", in_two_steps)

    def run(x: jax.Array) -> Any:
        return lax.reduce(x, jnp.float32(3), lax.max, (0, 1)), jnp.log(jnp.abs(x) + 1)

    with forced.everything_pays():
        jax.jit(stitch(run, schedule_device="cpu")).lower(jnp.zeros((2, 64)))
    assert blocks == [2]
