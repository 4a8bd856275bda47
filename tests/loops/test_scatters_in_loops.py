"""A scatter that is read in the body of a loop: what a team cannot do is left to XLA, whoever reads it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import devices
from tests.fusion import forced

PLACES = np.array([2, 0, 2, 4, 7, -1], np.int32)  # One is outside, and one at both ends of HLO's clamping.
UPDATES = np.array([1.5, -2.0, 0.25, 3.0, 9.0, 7.0], np.float32)
WINDOWS = lax.ScatterDimensionNumbers((1,), (), (0,))
"""As XLA for a GPU writes scatters."""
FORMS: dict[str, Any] = {
    "min": lambda x, at, u: x.at[at].min(u, mode="drop"),
    "max": lambda x, at, u: x.at[at].max(u, mode="drop"),
    "multiply": lambda x, at, u: x.at[at].multiply(u, mode="drop"),
    "add": lambda x, at, u: x.at[at].add(u, mode="drop"),
    "set": lambda x, at, u: x.at[at[1:]].set(u[1:], mode="drop"),
    "min of windows": lambda x, at, u: lax.scatter_min(x, at[:, None], u[:, None], WINDOWS, mode="drop"),
    "add of windows": lambda x, at, u: lax.scatter_add(x, at[:, None], u[:, None], WINDOWS, mode="drop"),
    "rows": lambda x, at, u: jnp.stack([x, x * 2], 1).at[at].add(u[:, None], mode="drop").sum(1),
}
READERS: dict[str, Any] = {
    "product": lambda s, w: w @ s,
    "function": lambda s, w: jnp.tanh(s),
    "sum": lambda s, w: s.sum() + jnp.zeros_like(s),
    "slice": lambda s, w: jnp.resize(s[1:3], s.shape),
}


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("form", FORMS)
def test_a_scatter_in_a_step_and_its_reader(form: str, reader: str, target: str) -> None:
    x, w = np.linspace(0.5, 1.5, 5, dtype=np.float32), np.linspace(-0.3, 0.4, 25, dtype=np.float32).reshape(5, 5)

    def fun(x: Any, w: Any, at: Any, updates: Any) -> Any:
        def step(c: Any, k: Any) -> Any:
            scattered = FORMS[form](c, at, updates * 0.1 + k.astype(c.dtype))
            return READERS[reader](scattered, w) * 0.5 + 0.5, scattered[2]

        return lax.scan(step, x, jnp.arange(4))

    args = x, w, PLACES, UPDATES
    got = forced.run(forced.stitched(forced.hlo_of(fun, *args), devices.get(target)), args)
    want = jax.tree.leaves(jax.jit(fun)(*args))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-5, atol=1e-6)
