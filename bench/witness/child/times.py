"""Run by either edition of the package, in a process of its own: one workload on this CPU, timed when it is asked.

``python times.py WORKLOAD SIZE``; each line on standard input is ``{"seconds": S}``, and is answered with the medians
of the calls made in as many seconds, of ``jax.jit`` and of ``stitch_jit``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


def median(run: Callable[..., Any], args: Sequence[Any], seconds: float) -> float:
    import jax

    found: list[float] = []
    end = time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        jax.block_until_ready(run(*args))
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def main() -> None:
    workload, size = sys.argv[1], tuple(json.loads(sys.argv[2]))
    import jax
    import jax.numpy as jnp

    from bench.workloads import ALL
    from jax_stitch import stitch_jit

    function, args = ALL[workload].make(size, jnp.dtype("float32"))
    both: dict[str, Any] = {"plain": jax.jit(function), "stitched": stitch_jit(function)}
    for run in both.values():  # Compiled, and caches filled.
        for _ in range(3):
            jax.block_until_ready(run(*args))
    print(json.dumps({"ready": 1}), flush=True)
    for line in sys.stdin:
        seconds = json.loads(line)["seconds"] / 2
        print(json.dumps({kind: median(run, args, seconds) for kind, run in both.items()}), flush=True)


if __name__ == "__main__":
    main()
