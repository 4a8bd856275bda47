"""Counted instructions against the checking mode, which runs a GPU's kernels thread by thread and counts sectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.checking import check_function
from jax_stitch.latency.model import counted as counted_of
from tests.fusion import forced

H200 = forced.device("h200")
X = np.random.default_rng(0).standard_normal((96, 512)).astype(np.float32)
SECTOR = 32


def _both(x: Any) -> Any:
    return x.sum(0), x * x.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("fun", "low", "high"),
    [
        (lambda x: jax.nn.softmax(x, 1), 1, 1),
        (lambda x: jax.nn.softmax(x, 0), 1, 1),
        (lambda x: jax.lax.cumsum(x, axis=1) * 2, 1, 1),
        (lambda x: jnp.exp(x).sum(0), 1, 1),
        (_both, 0.8, 1.25),  # partial results, and a last block alone
        (lambda x: jnp.pad(x, ((0, 0), (3, 0)))[:, :-3] * x, 0.8, 1.25),  # sectors that a shifted row begins in
        (lambda x: jnp.tanh(x.T) * x.sum(), 0.8, 1.25),  # sectors that neighbours share in strided reads
    ],
    ids=["rows", "columns", "scan", "sums", "both", "shifted", "transposed"],
)
def test_accesses_are_those_that_warps_make(fun: Callable[..., Any], low: float, high: float) -> None:
    with jax.enable_x64(True):
        made = forced.stitched(forced.hlo_of(fun, X), H200)
        counted = sum(launch.bytes_by_warps for launch in check_function(made, [X]).launches)
    found = 0.0
    for kernel in made.kernels:
        for classes in (one.work for one in counted_of(kernel.scheduled, H200)):
            found += X.itemsize * (classes["load"] + classes["store"])
            found += SECTOR * (classes["gather"] + classes["scatter"])
    assert low * (1 - 1e-9) <= found / counted <= high * (1 + 1e-9)
