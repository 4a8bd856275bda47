"""``python -m tests.faults.many --count 5000``: what stays of so many functions after their caches are cleared.

Under ``jax.jit``, ``stitch_jit`` as it is by default, and with ``mode="now"``, where every function has its kernels
before it is forgotten: megabytes and mappings of memory, each in a process of its own. Kernels are
compiled without optimising them, which takes half as long: it is what they leave behind that counts.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

KINDS = ("jit", "auto", "now")

_NOISE, _FEW = 8.0, 40
"""Megabytes and mappings that two processes may differ by, whatever they have run."""


def resident() -> float:
    """Megabytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def measure(kind: str, count: int) -> None:
    """Prints what stays, every 500 functions."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jax_stitch import stitch_jit
    from jax_stitch.compile import host

    host.FLAGS = ("-O0", *(flag for flag in host.FLAGS if flag != "-O3"))
    jit = jax.jit if kind == "jit" else functools.partial(stitch_jit, mode=kind)
    x = np.ones((8, 64), np.float32)

    def call(number: int) -> None:
        def fun(x: Any) -> Any:
            return jnp.tanh(x - x.mean(-1, keepdims=True)) * x.sum(-1, keepdims=True) * (1 + number / 4096) + number

        jitted: Any = jit(fun)
        found = np.asarray(jitted(x))
        assert np.allclose(found, number, atol=1e-2), found
        jitted.clear_cache()

    def forget() -> None:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)

    for number in range(-20, 0):  # What is imported and allocated once
        call(number)
    forget()
    before = resident(), mappings()
    for number in range(count):
        call(number)
        if number % 100 == 99:
            forget()
        if number % 500 == 499 or number == count - 1:
            forget()
            kept, mapped = resident() - before[0], mappings() - before[1]
            print(f"{kind}: {number + 1} functions, {kept:.1f} MB and {mapped} mappings stay", flush=True)
    print(json.dumps({"functions": count, "megabytes": round(kept, 1), "mappings": mapped}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.many", description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    wanted = parser.parse_args()
    if wanted.kind:
        measure(wanted.kind, wanted.count)
        return 0
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for kind in KINDS:
            settings = {"JAX_STITCH_CACHE_DIR": cache, "JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
            command = [sys.executable, "-m", "tests.faults.many", "--kind", kind, "--count", str(wanted.count)]
            environment = os.environ | settings | {"PYTHONPATH": str(ROOT), "JAX_STITCH_LOG": "off"}
            with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    print(line, end="", flush=True)
            if process.returncode:
                return 1
            figures[kind] = json.loads(line)
    from tests.faults import record

    record.keep(wanted.json, "many", f"python -m tests.faults.many --count {wanted.count}", figures)
    jit = figures["jit"]
    return int(
        any(
            figures[mode]["megabytes"] > 1.2 * jit["megabytes"] + _NOISE
            or figures[mode]["mappings"] > jit["mappings"] + _FEW
            for mode in KINDS[1:]
        )
    )


if __name__ == "__main__":
    sys.exit(main())
