"""Epilogues of loops: what is computed by the teams that have it, and what is not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from jax_stitch.frontend.capture import cuda_plugin_installed
from tests.streams.programs import attention, causal, heads

pytestmark = pytest.mark.skipif(not cuda_plugin_installed(), reason="needs JAX's CUDA plugin, for XLA's GPU compiler")
Q = jax.ShapeDtypeStruct((2, 1024, 8, 64), jnp.float32)
X = jax.ShapeDtypeStruct((2, 1024, 512), jnp.float32)


def attended(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, mask=causal)


def residual(x: Any, q: Any, k: Any, v: Any) -> Any:
    return x + jnp.tanh(attended(q, k, v)).reshape(x.shape)


def scaled_by_what_follows(x: Any, q: Any, k: Any, v: Any) -> Any:
    """Each row needs the others' results."""
    y = attended(q, k, v).reshape(x.shape)
    return x * y / (1 + jnp.abs(y).max())


def read_twice(x: Any, q: Any, k: Any, v: Any) -> Any:
    y = attended(q, k, v)
    return y, x + y.reshape(x.shape)


@pytest.mark.parametrize(
    ("function", "launches", "written"), [(residual, 1, 1), (scaled_by_what_follows, 2, 4), (read_twice, 1, 2)]
)
def test_what_a_team_has_is_computed_there(function: Any, launches: int, written: int) -> None:
    """Catches results that are written to be read again at the same places, and values of other teams' rows."""
    plan = stitch_jit(function).plan(X, Q, Q, Q, device="h200")
    assert plan.launches <= launches
    assert plan.bytes - (4 + launches - 1) * Q.size * 4 <= written * Q.size * 4 + 1e6


def cascade(x: Any, w: Any) -> Any:
    """Filters one after the other, each over all of the signal: a loop in a loop, with less in it than around it."""
    s, c = jnp.sin(w), jnp.cos(w)
    b = jnp.stack([1 + s, -2 * c, 1 - s], 1) / (8 + s)[:, None]
    a = jnp.stack([1 + s / 2, -c, 1 - s / 2], 1) / (8 + c)[:, None]

    def filtered(x: Any, ba: Any) -> Any:
        b, a = ba

        def step(z: Any, value: Any) -> Any:
            y = b[0] * value + z[0]
            return jnp.stack([b[1] * value - a[1] * y + z[1], b[2] * value - a[2] * y]), y

        return jax.lax.scan(step, jnp.zeros((2, x.shape[1])), x, unroll=4)[1], None

    y, _ = jax.lax.scan(filtered, x, (b, a))
    return y, jnp.sum(y * y, 0)


def test_a_loop_in_another_has_none() -> None:
    """Catches that what is computed after the outer loop is looked for in its body."""
    x, w = np.random.default_rng(0).standard_normal((128, 2)).astype(np.float32), np.linspace(0.1, 2.0, 4, dtype="f")
    found = stitch_jit(cascade, mode="now", strict=True)(x, w)
    for a, b in zip(found, jax.jit(cascade)(x, w), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


@pytest.mark.parametrize("function", [residual, scaled_by_what_follows, read_twice])
@pytest.mark.parametrize("device", ["h200", "zen4"])
def test_it_computes_the_same(function: Any, device: str) -> None:
    q, k, v = heads(128, 128, size=64)
    x = np.random.default_rng(5).standard_normal((*q.shape[:2], q.shape[2] * q.shape[3])).astype(np.float32)
    with jax.default_matmul_precision("highest"):
        found = jax.jit(stitch(function, schedule_device=device))(x, q, k, v)
        expected = jax.jit(function)(x, q, k, v)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, 2e-4, 2e-5)
