"""Estimates of a plan's time by its calls and operations on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import devices
from jax_stitch.fusion import explore
from jax_stitch.fusion.calls import call_seconds
from tests.fusion import forced

ONE_BY_ONE: dict[str, Callable[[Any], Any]] = {
    "sine": jnp.sin,
    "cosine": jnp.cos,
    "tan": jnp.tan,
    "erf": lax.erf,
    "cbrt": jnp.cbrt,
    "atan2": lambda x: jnp.arctan2(x, 2.0),
}
"""Functions of doubles that go to the C library."""


def seconds(function: Callable[[Any], Any], dtype: str) -> float:
    """Return the estimate of a kernel of ours on one Zen 4."""
    device = devices.get("zen4")
    x = np.ones((64, 256), dtype)
    with jax.enable_x64(True), forced.everything_pays():
        plan = explore(forced.graph_of(lambda x: function(x) * 2 + function(x).sum(1, keepdims=True), x), device)
    assert plan.kernels
    return call_seconds(plan, device)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_functions_that_go_to_the_library_are_priced_so(name: str) -> None:
    """Catches doubles at the price of floats: a kernel of ours was taken for ten times as fast as it is."""
    assert seconds(ONE_BY_ONE[name], "float64") > 5 * seconds(jnp.exp, "float64")
    assert seconds(ONE_BY_ONE[name], "float64") > 5 * seconds(ONE_BY_ONE[name], "float32")


@pytest.mark.parametrize("function", [jnp.exp, jnp.tanh, jnp.log1p])
def test_functions_in_vectors_take_twice_as_long(function: Callable[[Any], Any]) -> None:
    """Catches doubles in vectors at the price of floats, or of calls."""
    assert 1.2 < seconds(function, "float64") / seconds(function, "float32") < 3
