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
from jax_stitch.backend.compile import host, toolchain  # noqa: E402

host.FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in host.FLAGS)  # It is quicker.
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


def exactly(x, scale):
    """``normalized``, in float64 where ``x`` is."""
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    e = np.exp(y - y.max(0))
    return y * scale + np.tanh(y), e / e.sum(0)


rng = np.random.default_rng(0)
x, scale = rng.standard_normal((64, 100), np.float32), np.linspace(0.5, 2, 100, dtype=np.float32)
for found, wanted in zip(stitch_jit(normalized)(x, scale), exactly(x.astype(np.float64), scale), strict=True):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
gradient = stitch_jit(jax.grad(loss, (0, 1)))(x, scale)
given = x.astype(np.float64), scale.astype(np.float64)
for n, part in enumerate(gradient):
    # Along the gradient itself, where the difference is largest.
    step = 1e-6 * np.asarray(part, np.float64)
    ends = [list(given), list(given)]
    ends[0][n], ends[1][n] = given[n] + step, given[n] - step
    above, below = (sum((result**2).sum() for result in exactly(*end)) for end in ends)
    np.testing.assert_allclose((above - below) / 2e-6, (np.asarray(part, np.float64) ** 2).sum(), rtol=1e-4)
took["planner"] = "jax_stitch.fusion" in sys.modules
print(json.dumps(took))
