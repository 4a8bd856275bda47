"""Functions nested as deeply as ``jax.jit`` takes them, and one that calls itself for ever."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit


def nested(jit: Any, depth: int) -> Any:
    fun = jnp.sin
    for level in range(depth):

        def outer(x: Any, fun: Any = fun, level: int = level) -> Any:
            return fun(x) * 1.01 + level

        fun = jit(outer)
    return fun


@pytest.mark.parametrize("depth", [48, pytest.param(80, marks=pytest.mark.slow)])
def test_many_functions_in_each_other(depth: int) -> None:
    """Python's stack overflowed at forty, where ``jax.jit`` manages eighty."""
    x, limit = np.ones(4, np.float32), sys.getrecursionlimit()
    np.testing.assert_allclose(nested(stitch_jit, depth)(x), nested(jax.jit, depth)(x), rtol=1e-5)
    assert sys.getrecursionlimit() == limit


def test_one_that_calls_itself_for_ever() -> None:
    """It must end as under ``jax.jit``, and not in the stack of the process."""
    limit = sys.getrecursionlimit()

    @stitch_jit
    def fun(x: Any) -> Any:
        return fun(x) + 1

    with pytest.raises(RecursionError):
        fun(np.ones(4, np.float32))
    assert sys.getrecursionlimit() == limit
