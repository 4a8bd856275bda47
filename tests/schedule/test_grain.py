"""Elementwise parts of a GPU take as many elements at once as an access holds, where these are neighbours."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from tests.fusion import forced

ROWS, COLUMNS = 768, 512
"""Elements enough for two blocks of such threads on each multiprocessor."""

X, Y = (np.random.default_rng(k).standard_normal((ROWS, COLUMNS)).astype(np.float32) for k in (0, 1))
ROW, COLUMN = X[0], X[:, :1]
HALF = X.astype(jnp.bfloat16)
HALVES = np.concatenate([HALF, HALF])


def two_steps(x: Any, y: Any) -> Any:
    m = 0.9 * x + 0.1 * y
    return m, x - m / (jnp.sqrt(jnp.abs(y)) + 1.0)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], set[int]]] = {
    "an update": (two_steps, (X, Y), {4}),
    "16 bits": (lambda x: jnp.tanh(x) * 2, (HALVES,), {8}),
    "16 bits, fewer": (lambda x: jnp.tanh(x) * 2, (HALF,), {4}),
    "16 and 32 bits": (lambda x, y: (x.astype(jnp.float32) * y, x + 1), (HALF, Y), {4}),
    "8 bits beside": (lambda x: (x > 0, x * 2), (X,), {4}),
    "a row and a column for all": (lambda x, row, column: x * row + column, (X, ROW, COLUMN), {4}),
    "one dimension": (lambda x: jnp.exp(x) + 1, (X.reshape(-1),), {4}),
    "an odd half": (lambda x: jnp.exp(x) + 1, (X.reshape(-1)[: ROWS * COLUMNS - 2],), {2}),
    "an odd number": (lambda x: jnp.exp(x) + 1, (X.reshape(-1)[:-1],), set()),
    "reversed": (lambda x: jnp.exp(x[:, ::-1]) + x, (X,), {4}),
    "shifted by one": (lambda x: jnp.exp(jnp.roll(x, 1, 1)) + x, (X,), {4}),
    "transposed": (lambda x: jnp.exp(x.T) + 1, (X,), set()),
    "few": (lambda x: jnp.exp(x) + 1, (X[:16],), set()),
    "random": (lambda x: x * jax.random.bernoulli(jax.random.key(3), 0.5, x.shape), (X,), {4}),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_widths(name: str) -> None:
    """Values of a neighbour, or of the next row, and accesses that no boundary allows."""
    fun, args, widths = CASES[name]
    with forced.everything_pays(0):
        found = stitch_jit(fun).plan(*args, device="h200")
        got = jax.jit(stitch(fun, schedule_device="h200"))(*args)
    taken = {int(w) for k in found.kernels for w in re.findall(r"ST_EACH_VECTOR\(j, \d+, (\d+)\)", k.source)}
    assert taken == widths
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(fun)(*args)), strict=True):
        np.testing.assert_allclose(
            np.asarray(g, np.float64),
            np.asarray(w, np.float64),
            rtol=2e-2 if g.dtype == jnp.bfloat16 else 1e-5,
            atol=1e-6,
        )
