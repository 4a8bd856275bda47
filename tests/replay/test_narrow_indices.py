"""Indices of 8 or 16 bits into arrays that are longer than these can say: XLA for a CPU clamps them by bounds in their
own type, and wrote outside of the array where an update was left to it alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch.frontend.replay import StitchedGraph, replay
from tests.fusion import forced

X = np.arange(300, dtype=np.float32)
ALONG = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
INTO = lax.ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))


def cut(x: Any, i: Any) -> Any:
    return lax.dynamic_slice_p.bind(x, i, slice_sizes=(4,))


def updated(x: Any, i: Any) -> Any:
    return lax.dynamic_update_slice_p.bind(x, jnp.full((4,), -1.0, x.dtype), i)


def gathered(x: Any, i: Any) -> Any:
    return lax.gather(x, i.reshape(1, 1), ALONG, (1,), mode="clip")


def scattered(x: Any, i: Any) -> Any:
    return lax.scatter_add(x, i.reshape(1, 1), jnp.full((1,), 7.0, x.dtype), INTO, mode="clip")


def exact(fun: Callable[..., Any], start: int) -> np.ndarray:
    wanted = X.copy()
    if fun is cut:
        return wanted[start : start + 4]
    if fun is gathered:
        return wanted[start : start + 1]
    if fun is updated:
        wanted[start : start + 4] = -1
    else:
        wanted[start] += 7
    return wanted


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("fun", [cut, updated, gathered, scattered])
def test_they_are_indices_all_the_same(fun: Callable[..., Any], dtype: str) -> None:
    for start in (1, 100, *([-3] if dtype != "uint8" else [200])):
        given, wanted = (X, np.array(start, dtype)), exact(fun, max(start, 0))
        run = jax.jit(replay(StitchedGraph(forced.graph_of(fun, *given))))
        np.testing.assert_array_equal(np.asarray(run(given)[0]), wanted)
    text = forced.hlo_of(lambda x, i: fun(x, i) * 2, *given)
    for device in ("cpu", "h200"):
        found = forced.run(forced.stitched(text, forced.device(device)), given)[0]
        np.testing.assert_array_equal(found, 2 * wanted)
