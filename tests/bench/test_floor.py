"""The least launches between library calls, on programs where it can be told by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bench.floor import floor
from jax_stitch.api import stitch_jit

X = jax.ShapeDtypeStruct((256, 256), jnp.float32)


def elementwise(x: Any) -> Any:
    return jnp.sin(x) * 2, jnp.cos(x).sum(0), x.T + 1


def between_two_products(x: Any) -> Any:
    """Before and between; and one beside, that can share either launch."""
    return jax.nn.softmax(jax.nn.softmax(x) @ x) @ x, jnp.tanh(x).sum(1)


def products_alone(x: Any) -> Any:
    return (x @ x) @ x


def loop_of_products(x: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda _, y: jax.nn.softmax(y @ x), x)


def loop_without_products(x: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda _, y: jnp.sin(y).cumsum(1), x) + 1


@pytest.mark.parametrize(
    ("function", "least"),
    [
        (elementwise, 1),
        (between_two_products, 2),
        (products_alone, 0),
        (loop_of_products, 5),
        (loop_without_products, 1),
    ],
)
def test_least_launches(function: Callable[[Any], Any], least: int) -> None:
    """A floor too low makes goals that cannot be reached, one too high hides what could be."""
    plan = stitch_jit(function).plan(X, device="h200")
    found = floor(plan.hlo)
    assert found == least, plan.hlo
    stitched = plan.stitched_traffic
    if stitched.library_launches == plan.xla_traffic.library_launches:  # a stitched loop may take its products inside
        assert found <= stitched.launches - stitched.library_launches
