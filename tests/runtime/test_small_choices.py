"""Indices chosen by comparisons with small numbers, in loops in vectors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fusion import forced

X = np.arange(10, 26, dtype=np.int32)


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("number", [1, 2])
def test_an_index_that_is_a_number_or_the_place_itself(count: int, number: int) -> None:
    """GCC 12 read another element for place 1, outside of the array. With the flags that users have."""

    def fun(x: Any) -> Any:
        places = jnp.arange(count)
        return jnp.take(x, jnp.where(places < number, places, number))

    text = jax.jit(fun).lower(X).compile().as_text()
    kernels = forced.stitched(text or "", forced.device("cpu")).compile("host")
    np.testing.assert_array_equal(jax.jit(kernels)([X])[0], X[np.minimum(np.arange(count), number)])
