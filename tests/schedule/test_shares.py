"""Reductions that leave places of a row are shared out over a GPU's lanes: sums and argmax, in vectors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.checking import check_function
from jax_stitch.schedule.model import InnerReducePass
from tests.fusion import forced
from tests.schedule.test_row_vectors import widths_in

H200 = devices.get("h200")


def largest_of_each(x: Any, numpy: Any = jnp) -> Any:
    """Of a group of channels: where each channel is largest, less what the whole group has."""
    return numpy.argmax(x - x.mean((1, 2), keepdims=True), 1), x.max((1, 2))


def sums_of_each(x: Any, numpy: Any = jnp) -> Any:
    return numpy.sum(x - x.mean((1, 2), keepdims=True), 1), x.max((1, 2))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("function", [largest_of_each, sums_of_each], ids=["argmax", "sum"])
@pytest.mark.parametrize(
    ("places", "channels", "vector", "dtype"),
    [(600, 4, 4, "f4"), (600, 6, 2, "f4"), (600, 3, 1, "f4"), (250, 128, 4, "f4"), (96, 16, 8, "f2")],
)
def test_results(function: Any, places: int, channels: int, vector: int, dtype: str) -> None:
    """Shares of another place, without what the argmax starts from, or read before they are complete."""
    x = np.random.default_rng(places).integers(-40, 40, (3, places, channels)).astype(dtype)
    x[0, 5:9], x[1, 7], x[2, :, -1] = 90, np.nan, -np.inf
    kernels = forced.stitched(forced.hlo_of(function, x), H200)
    found = check_function(kernels, [x])
    assert not found.errors, str(found)
    for got, wanted in zip(jax.tree.leaves(found.results), function(x.astype(np.float64), np), strict=True):
        atol = 0 if wanted.dtype.kind == "i" else 2e-3 * places
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=2e-3 if atol else 0, atol=atol)
    passes = [s for k in kernels.kernels for p in k.scheduled.parts for s in p.passes if isinstance(s, InnerReducePass)]
    assert [(s.shares > 1, s.vector) for s in passes] == [(True, vector)]
    widths = {max(widths_in(compile_ptx(k.source, "sm_90").ptx)) for k in kernels.kernels}
    assert max(widths) >= vector * 8 * x.itemsize


def test_few_rows_of_a_long_reduction_have_a_block_each() -> None:
    """A block of four rows, since what is left of each is short: two of 132 multiprocessors, where eight could work."""

    def scores(x: Any) -> Any:
        left = jnp.tanh(x).sum(2)
        return jax.nn.softmax(left, -1)

    x = jax.ShapeDtypeStruct((8, 32, 512), jnp.float32)
    (kernel,) = forced.stitched(forced.hlo_of(scores, x), H200).kernels
    parts = [p for p in kernel.scheduled.parts if any(isinstance(s, InnerReducePass) for s in p.passes)]
    assert all(p.split.rows_per_block == 1 and p.split.lanes == 1024 for p in parts) and parts


def test_shares_of_several_reductions_have_room_together() -> None:
    """Each alone had: what all of a kernel took was more than a block may have, and its launch was refused."""

    def fun(x: Any) -> Any:
        y = x - x.mean((1, 2), keepdims=True)
        return [jnp.tanh(y * k).sum(1) for k in range(1, 9)]

    x = np.random.default_rng(3).standard_normal((3, 4096, 8)).astype(np.float32)
    (kernel,) = forced.stitched(forced.hlo_of(fun, x), H200).kernels
    passes = [s for p in kernel.scheduled.parts for s in p.passes if isinstance(s, InnerReducePass)]
    assert len(passes) == 8 and min(s.shares for s in passes) > 1
    assert kernel.source.shared_bytes <= H200.shared_per_block_optin
