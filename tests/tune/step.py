"""A program of its own for the tests: calls an autotuned function, checks it, tells as JSON what it took."""

from __future__ import annotations

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import stitch_jit
from jax_stitch.jit.tune import race

measured: list[str] = []
measure = race.measure


def counted(run: race.Race) -> object:
    measured.append("-".join(run.keys))
    return measure(run)


race.measure = counted


def normalized(x, scale):
    y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return y * scale + jnp.tanh(y), jax.nn.softmax(y, 0)


x = np.random.default_rng(0).standard_normal((256, 100), np.float32)
scale = np.linspace(0.5, 2, 100, dtype=np.float32)
print("started", flush=True)
sys.stdin.readline()
function = stitch_jit(normalized, autotune="top3")
for a, b in zip(function(x, scale), jax.jit(normalized)(x, scale), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
before = len(measured)
plan = function.plan(x, scale)
print(
    json.dumps({"measured": measured, "by_plan": len(measured) - before, "kernels": [k.schedule for k in plan.kernels]})
)
