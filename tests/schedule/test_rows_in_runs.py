"""Rows of a CPU in runs: neighbours in memory, and those that read one element of what has fewer dimensions."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.ir.indices import linearize, var
from jax_stitch.schedule.strides import run_length

ROW = var("row", 1200)


@pytest.mark.parametrize(
    ("address", "length"),
    [
        (ROW, 1200),
        (ROW // 20, 20),
        (ROW // 20 % 12, 20),
        (ROW // 12, 1200),  # fills no vectors
        (ROW // 400 + ROW // 60 % 3, 60),
        (ROW % 48, 48),
    ],
)
def test_a_run_ends_where_another_element_is_read(address: object, length: int) -> None:
    index = (ROW, address)
    assert run_length([(index, (1200, 1200))], "row", 1200) == length


def test_several_arrays_have_the_runs_of_all() -> None:
    whole, rows, columns = (ROW,), (ROW // 60,), (ROW // 20,)
    assert run_length([(whole, (1200,)), (rows, (20,))], "row", 1200) == 60
    assert run_length([(whole, (1200,)), (rows, (20,)), (columns, (60,))], "row", 1200) == 20
    assert linearize(whole, (1200,)) == ROW


@pytest.mark.usefixtures("zen4")
def test_what_a_group_of_rows_shares_is_read_once() -> None:
    """Each element read it at ``row / 20``, which kept GCC from making vectors: 284 us, of one core, 91 now."""

    def focal(x: jax.Array, found: jax.Array, best: jax.Array, labels: jax.Array) -> jax.Array:
        wanted = jnp.where(found, labels[best], -1)[:, None] == jnp.arange(20)
        p = jax.nn.sigmoid(x)
        return jnp.where(wanted, -0.25 * (1 - p) ** 2, 0.75 * p**2)

    random = np.random.RandomState(0)
    x = random.randn(3000, 20).astype(np.float32)
    args = x, random.rand(3000) < 0.5, random.randint(0, 12, 3000), random.randint(0, 20, 12)
    (kernel,) = stitch_jit(focal).plan(*args).kernels
    assert "ST_SPLIT_ROWS(60000, 20, 20, 1)" in kernel.source
    assert not re.search(r"row\) [/%] 20", kernel.source)
    np.testing.assert_allclose(stitch_jit(focal, mode="now")(*args), jax.jit(focal)(*args), rtol=1e-6, atol=1e-7)
