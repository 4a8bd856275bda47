"""A program of its own for the tests: stitches two functions, checks their results, tells what it took as JSON."""

from __future__ import annotations

import json
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np

warnings.simplefilter("error")

from jax_stitch import stitch_jit  # noqa: E402
from jax_stitch.compile import toolchain  # noqa: E402

took = {"compiled": 0, "hits": 0, "misses": 0}
shared_object = toolchain.shared_object


def counted(*arguments: object, **options: object) -> bytes:
    took["compiled"] += 1
    return shared_object(*arguments, **options)


def count_events(event: str, **_: object) -> None:
    for kind in ("hits", "misses"):
        took[kind] += event == f"/jax/compilation_cache/cache_{kind}"


toolchain.shared_object = counted
jax.monitoring.register_event_listener(count_events)


def normalized(x, scale):
    y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return y * scale + jnp.tanh(y), jax.nn.softmax(y, 0)


def loss(x, scale):
    return sum((part**2).sum() for part in normalized(x, scale))


x = np.random.default_rng(0).standard_normal((64, 100), np.float32)
scale = np.linspace(0.5, 2, 100, dtype=np.float32)
for fun in (normalized, jax.grad(loss, (0, 1))):
    found, expected = stitch_jit(fun)(x, scale), jax.jit(fun)(x, scale)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
took["planner"] = "jax_stitch.fusion" in sys.modules
print(json.dumps(took))
