"""What a call's results took is still the process's when the next call asks for as much."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import resource
import jax, numpy as np
from jax_stitch import stitch_jit
from jax_stitch.backend.compile import host

host.FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in host.FLAGS)  # How fast kernels are is not asked.

@stitch_jit
def update(arrays):
    softest = [jax.nn.softmax(a) for a in arrays]
    return [(s, 0.99 * s + 0.01, a - 0.001 * s) for a, s in zip(arrays, softest)]

for count in (4, 12):  # What the first program leaves is no hold for what the second frees.
    arrays = [jax.device_put(np.full((175, 175), k, np.float32)) for k in range(count)]
    for _ in range(10):
        jax.block_until_ready(update(arrays))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(40):
        jax.block_until_ready(update(arrays))
assert update.status().programs[-1].kernels
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 40)
"""


def faults(**environment: str) -> float:
    """Pages that each call touches for the first time."""
    command = [sys.executable, "-c", PROGRAM]
    variables = os.environ | {"JAX_STITCH_MODE": "now"} | environment
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True)
    return float(done.stdout)


glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep what they keep")


@glibc
def test_results_are_not_touched_for_the_first_time_at_every_call() -> None:
    """Their 4.4 MB went back to the system with each call: about 500 faults, which took longer than the kernels."""
    assert faults() < 100


@glibc
def test_what_the_user_has_set_stays() -> None:
    """Here: give everything back, at once."""
    assert faults(MALLOC_TRIM_THRESHOLD_="0", MALLOC_MMAP_THRESHOLD_="4096") > 100
