"""``python -m tests.faults.many --count 5000``: what stays of so many functions after their caches are cleared.

Under ``jax.jit``, ``stitch_jit`` as it is by default, and with ``mode="now"``, where every function has its kernels
before it is forgotten, each in a process of its own. Three figures: megabytes in use, in which what Python allocates
counts byte by byte (``PYTHONMALLOC=malloc``, ``mallinfo2``); megabytes resident, with all that the allocators hold back
and return at moments of their own; and mappings of memory. Kernels are compiled without optimising them, which takes
half as long: it is what they leave behind that counts.
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
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

KINDS = ("jit", "auto", "now")

_MOST, _EACH, _SURE, _FEW = 1.2, 100, 1000, 40
"""How much more than under ``jax.jit`` may stay: times its megabytes, bytes more for each function, but of so many at
the least, and mappings more."""


class _Heap(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "free", "fast", "mapped", "in_mapped", "a", "b", "in_use", "unused", "top")
    ]


def in_use() -> float:
    """Megabytes that this process has asked for and not given back."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Heap
    heap = libc.mallinfo2()
    return (heap.in_use + heap.in_mapped) / 1e6


def resident() -> float:
    """Megabytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def _call(jit: Any, x: Any, number: int) -> None:
    """Makes a function, calls it, and forgets it."""
    import jax.numpy as jnp
    import numpy as np

    def fun(x: Any) -> Any:
        return jnp.tanh(x - x.mean(-1, keepdims=True)) * x.sum(-1, keepdims=True) * (1 + number / 4096) + number

    jitted: Any = jit(fun)
    found = np.asarray(jitted(x))
    assert np.allclose(found, number, atol=1e-2), found
    jitted.clear_cache()


def _forget() -> None:
    import jax

    jax.clear_caches()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _rested() -> tuple[float, float, int]:
    """What stays, once nothing goes on in the background."""
    last = -1.0
    for _ in range(60):
        _forget()
        if abs(in_use() - last) < 0.01:
            break
        last = in_use()
        time.sleep(1)
    return in_use(), resident(), mappings()


def measure(kind: str, count: int) -> None:
    """Prints what stays, every 500 functions."""
    import jax
    import numpy as np

    from jax_stitch import stitch_jit
    from jax_stitch.backend.compile import host

    host.FLAGS = ("-O0", *(flag for flag in host.FLAGS if flag != "-O3"))
    jit = jax.jit if kind == "jit" else functools.partial(stitch_jit, mode=kind)
    x = np.ones((8, 64), np.float32)

    call = functools.partial(_call, jit, x)
    for number in range(-200, 0):  # What is imported and allocated once
        call(number)
    for number in range(100_000):  # Python's table of such names grows by 2 MB at some time; now.
        sys.intern(f"{kind} {number}")
    before = _rested()
    for number in range(count):
        call(number)
        if number % 100 == 99:
            _forget()
        if number % 500 == 499 or number == count - 1:
            now = _rested()
            used, kept, mapped = (later - earlier for later, earlier in zip(now, before, strict=True))
            print(
                f"{kind}: {number + 1} functions, {used:.2f} of {now[0]:.1f} MB in use, {kept:.1f} of {now[1]:.0f} MB "
                f"resident and {mapped} mappings stay",
                flush=True,
            )
    print(
        json.dumps(
            {
                "functions": count,
                "megabytes in use": round(now[0], 2),
                "in use since": round(used, 3),
                "megabytes resident": round(now[1], 1),
                "resident since": round(kept, 1),
                "mappings": mapped,
            }
        ),
        flush=True,
    )


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
            environment["PYTHONMALLOC"] = "malloc"
            with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    print(line, end="", flush=True)
            if process.returncode:
                return 1
            figures[kind] = json.loads(line)
    from tests.faults import record

    record.keep(wanted.json, "many", f"python -m tests.faults.many --count {wanted.count}", figures)
    return int(not all(_within(figures[mode], figures["jit"]) for mode in KINDS[1:]))


def _within(found: dict[str, float], jit: dict[str, float]) -> bool:
    return (
        all(found[of] <= _MOST * jit[of] for of in ("megabytes in use", "megabytes resident"))
        and (found["in use since"] - jit["in use since"]) * 1e6 <= _EACH * max(found["functions"], _SURE)
        and found["mappings"] <= jit["mappings"] + _FEW
    )


if __name__ == "__main__":
    sys.exit(main())
