"""Loops of a GPU's kernels ask for several elements before they need the first."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch.backend.compile import compile_ptx
from jax_stitch.frontend.capture import capture
from jax_stitch.pipeline import stitch_capture
from tests.fusion import forced


def discounted(rewards: jax.Array) -> jax.Array:
    def step(carry: jax.Array, reward: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = reward + 0.99 * carry
        return carry, carry

    return jax.lax.scan(step, jnp.zeros(rewards.shape[1]), rewards)[1]


PROGRAMS: dict[str, tuple[Any, tuple[int, ...]]] = {
    # Turns of a block that goes through an array; rows that are all there; places that leave the last turn some lanes.
    "standardise": (lambda x: (x - x.mean()) / x.std(), (8192, 1024)),
    "loop in threads": (discounted, (1000, 2048)),
    "places": (lambda x: x - x.mean((1, 3), keepdims=True), (32, 3136, 32, 2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_loads_are_not_waited_for_one_by_one(name: str) -> None:
    """On an H200 these took up to 5 times as long: each turn asked whether it was the last, or whether its row was
    still there, and no load was begun before that was known.
    """
    function, shape = PROGRAMS[name]
    device = forced.device("h200")
    stitched = stitch_capture(capture(function, (jax.ShapeDtypeStruct(shape, jnp.float32),), device), device)
    source = max(stitched.sources, key=lambda s: len(s.code))
    blocks = re.split(r"^(?:\$L\w+:|\s+@?[!%\w]*\s*bra\b.*)$", compile_ptx(source, "sm_90").ptx, flags=re.MULTILINE)
    most = max(len(re.findall(r"^\s+ld\.global", block, re.MULTILINE)) for block in blocks)
    assert most >= 4
