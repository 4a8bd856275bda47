"""Loops of one step: what an iteration stacks is the whole array, which nobody but that iteration writes.

A stacked array of one element was read back by the kernel that was to write it: what lay in memory was the result.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import devices
from jax_stitch.checking import check_function
from tests.fusion import forced


def stacking(x: Any) -> Any:
    return lax.scan(lambda c, v: (jnp.sin(c) + v, (c * v, c)), x[0] * 2, x)


def reversed_(x: Any) -> Any:
    return lax.scan(lambda c, v: (jnp.sin(c) + v, c), x[0] * 2, x, reverse=True)


def read_again(x: Any) -> Any:
    last, stacked = stacking(x)
    return last, stacked[0], stacked[1][None] + 1, stacked[1].sum()


def without_inputs(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.cos(c), c + 1), x, None, length=1)


def in_a_loop(x: Any) -> Any:
    return lax.scan(lambda c, _: (c * 0.5 + without_inputs(c)[1][0], c), x, None, length=3)


def derivative(x: Any) -> Any:
    return jax.grad(lambda v: sum(jnp.sum(y) for y in jax.tree.leaves(stacking(v))))(x)


def accumulated(x: Any) -> Any:
    every = jnp.bitwise_or.accumulate(x.astype(jnp.int32), axis=-1)
    return every, every[None]


PROGRAMS = {
    "stacking": stacking,
    "reversed": reversed_,
    "read again": read_again,
    "without inputs": without_inputs,
    "in a loop": in_a_loop,
    "derivative": derivative,
    "accumulated": accumulated,
    "of rows": jax.vmap(stacking),
    "of columns": jax.vmap(read_again, in_axes=1, out_axes=-1),
}


@pytest.mark.parametrize("shape", [(1,), (2, 1)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_step(name: str, shape: tuple[int, ...]) -> None:
    """XLA's passes unroll loops of one step: these are planned as JAX writes them."""
    if name.startswith("of ") and len(shape) == 1:
        shape = (*shape, 1)
    x = jnp.linspace(0.5, 2.0, int(np.prod(shape))).reshape(shape)
    kernels = forced.stitched(forced.hlo_of(PROGRAMS[name], x), devices.get("h200"), 0)
    found = check_function(kernels, (x,))
    assert not found.errors
    for got, want in zip(found.results, jax.tree.leaves(jax.jit(PROGRAMS[name])(x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
