"""One process of the soak: it calls new and old functions under all modes until it is killed."""

from __future__ import annotations

import json
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import stitch_jit
from tests.faults import maker

MODES = ("auto", "auto", "auto", "now", "async", "off")
KINDS = 64
"""Different programs; what is stitched of them is more than the cache holds."""
X = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)


def make(k: int) -> Callable[[Any], Any]:
    """The program of that number."""
    scale = np.float32(1 + k / 64)

    def fun(x: Any) -> Any:
        if k % 3 == 0:
            return jax.nn.softmax(x * scale, -1) + x.sum(-1, keepdims=True)
        if k % 3 == 1:
            return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + scale)
        return jnp.cumsum(jnp.tanh(x * scale), -1)

    return fun


def exactly(k: int) -> np.ndarray:
    """What it returns for ``X``, in float64."""
    x, scale = X.astype(np.float64), 1 + k / 64
    if k % 3 == 0:
        e = np.exp(x * scale - (x * scale).max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) + x.sum(-1, keepdims=True)
    if k % 3 == 1:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + scale)
    return np.cumsum(np.tanh(x * scale), -1)


def work(seed: int) -> None:
    """Calls and calls. Says in a line what came of the last ones, once a second."""
    rng = random.Random(seed)
    maker.install()
    warnings.simplefilter("ignore")
    old: list[tuple[int, Any]] = []
    counts = {"calls": 0, "wrong": 0, "stitched": 0}
    said = time.monotonic()
    while True:
        if old and rng.random() < 0.9:
            k, stitched = rng.choice(old)
        else:
            k = rng.randrange(KINDS)
            stitched = stitch_jit(make(k), mode=rng.choice(MODES))
            old = [*old[-20:], (k, stitched)]
        expected = exactly(k)
        for _ in range(rng.choice((1, 1, 30))):  # It takes some calls to see which is faster.
            counts["calls"] += 1
            counts["wrong"] += not np.allclose(stitched(X), expected, rtol=1e-4, atol=1e-4)
        counts["stitched"] += any(program.state == "stitched" for program in stitched.status().programs)
        if time.monotonic() - said > 1.0:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            print(json.dumps(counts | {"memory": resident, "files": len(os.listdir("/proc/self/fd"))}), flush=True)
            counts, said = dict.fromkeys(counts, 0), time.monotonic()
        time.sleep(rng.random() / 2)
        if rng.random() < 0.002:
            stitched.clear_cache()
            jax.clear_caches()


if __name__ == "__main__":
    work(int(sys.argv[1]))
