"""Steps of a kernel that use the same shared memory one after the other."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.checking import check_function
from tests.fusion import forced
from tests.fuzz.ways import device_of


def norms(x: Any) -> Any:
    """The largest sums of columns and of rows: rows are joined, and then the block's values reduced."""
    return jnp.abs(x).sum(0).max() * jnp.abs(x).sum(1).max()


@pytest.mark.parametrize("shape", [(2, 2), (7, 5), (64, 3)])
def test_joined_rows_and_a_reduction_of_the_block(shape: tuple[int, int]) -> None:
    """The last of the joined values was still read when a faster warp wrote its part of the reduction there."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    kernels = forced.stitched(forced.hlo_of(norms, x), device_of("middle"), 0)
    assert any("ST_JOIN_ROWS" in k.source.text and "ST_REDUCE_BLOCK" in k.source.text for k in kernels.kernels)
    found = check_function(kernels, [x])
    assert not found.errors
    np.testing.assert_allclose(found.results[0], np.abs(x).sum(0).max() * np.abs(x).sum(1).max(), rtol=1e-5)
