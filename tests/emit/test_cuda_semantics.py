"""The CUDA side of the runtime header and of the emitted text, run with CUDA's rules where there is no GPU.

The host side of the header has neither barriers nor shuffles: a race, a barrier inside a condition or a wrong lane
shows only in the checking mode.
"""

from __future__ import annotations

from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.checking import check_function
from tests.drawn import differences, program
from tests.fusion import forced

DEVICES = [
    forced.device("h200", multiprocessors=8),  # so that blocks that wait for each other fit this machine
    forced.device("h200", multiprocessors=2, shared_per_block=2048, shared_per_block_optin=16384),
]


@pytest.mark.parametrize("seed", range(12))
def test_random_functions(seed: int) -> None:
    with jax.enable_x64(True):
        made = program(Random(seed), steps=12, max_size=1500)
        kernels = forced.stitched(forced.hlo_of(made.fun, *made.args), DEVICES[seed % 2], seed)
        checked = check_function(kernels, made.args)
        wrong = differences(made, checked.results, made.fun(*made.args))
    assert not wrong, "\n".join([*wrong, repr(made)])
    assert not checked.errors, f"{checked}\n{made!r}"


def softmax(x, axis):
    return jax.nn.softmax(x, axis)


def column_sums(x):
    return x - x.mean(1, keepdims=True), x.sum(0), (x * x).sum(0)


def kept_places(x):
    s = x.reshape(-1, 4, x.shape[1]).sum(1)
    return s * 2, s.max(1), s - s[:, ::-1] * 3


def kept_places_in_turns(x):
    """Each block does several rows, one after the other, and each row's places are read by other threads."""
    s = x.reshape(-1, 4, x.shape[1]).sum(1)
    y = s - s[:, ::-1] * 3
    return y, y.sum(0)


def across_rows(x):
    """Three phases: column statistics, what is made of them with the rows, and of that columns again."""
    y = (x - x.mean(0)) / (1 + x.std(0))
    return y, (y * x).sum(0), y.max(1)


CASES = {
    "phases": (across_rows, (3000, 130)),
    "phases, few blocks": (across_rows, (64, 40)),
    "last block alone": (lambda x: jnp.log(jnp.exp(x).sum(1)).mean(), (3000, 130)),
    "one warp a row": (lambda x: softmax(x, 1), (40, 100)),
    "several warps a row": (lambda x: softmax(x, 1), (3, 3000)),
    "lanes below a warp": (lambda x: softmax(x, 1), (100, 13)),
    "rows fastest": (lambda x: softmax(x, 0), (200, 70)),
    "whole array": (lambda x: (x - x.mean()) / x.std(), (30, 70)),
    "partial sums": (column_sums, (300, 33)),
    "partial sums, turns": (column_sums, (2000, 7)),
    "kept places": (kept_places, (80, 50)),
    "kept places, turns": (kept_places_in_turns, (8000, 70)),
    "scan, one warp a row": (lambda x: softmax(jnp.cumsum(x, 1), 1), (40, 300)),
    "scan, several warps a row": (lambda x: jnp.cumsum(x, 1) / (1 + abs(x).sum(1, keepdims=True)), (3, 3001)),
    "scan, lanes below a warp": (lambda x: jnp.cumsum(jnp.exp(jax.lax.cummax(x, 1)), 1), (101, 13)),
    "scan, rows fastest": (lambda x: jnp.cumsum(x, 0) * x, (333, 70)),
    "scan backward": (lambda x: (jax.lax.cumlogsumexp(x, 1, reverse=True), x.sum(1)), (9, 1030)),
    "scan backward, rows fastest": (lambda x: jax.lax.cummax(x, 0, reverse=True), (100, 1030)),
    "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)), (50, 300)),
}


@pytest.mark.parametrize("target", DEVICES, ids=["h200", "small"])
@pytest.mark.parametrize("name", CASES)
def test_each_composition(name: str, target) -> None:
    function, dims = CASES[name]
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    with jax.enable_x64(True):
        kernels = forced.stitched(forced.hlo_of(function, x), target)
        checked = check_function(kernels, [x])
        want = jax.tree.leaves(jax.jit(function)(x))
    if "phases" in name:
        assert any(k.source.phases for k in kernels.kernels)
    if name == "phases" and target is DEVICES[0]:
        assert any("ST_GRID_BARRIER" in k.source.text for k in kernels.kernels)
    if "alone" in name:
        assert any("ST_LAST_BLOCK_ALONE" in k.source.text for k in kernels.kernels)
    if "scan" in name:
        assert any("ST_SCAN" in k.source.text for k in kernels.kernels)
    if "kept places" in name:
        assert any("ST_SHARED" in k.source.text for k in kernels.kernels)
    for g, w in zip(checked.results, want, strict=True):
        np.testing.assert_allclose(g, np.asarray(w), rtol=2e-5, atol=2e-5)
    assert not checked.errors, str(checked)
