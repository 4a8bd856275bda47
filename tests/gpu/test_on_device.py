"""Every workload, stitched, on the attached GPU; `bench/gpu.sh` asks the same of processes apart.

``BENCH_DEVICE=cpu`` runs the same on a CPU, for the sake of the script; the kernels' CPU side has its own tests.
"""

from __future__ import annotations

import faulthandler
import os
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bench.gpu.correctness import faults
from bench.workloads import ALL, WORKLOADS

DEVICE = os.environ.get("BENCH_DEVICE", "cuda")
BACKEND = {"cuda": "gpu"}.get(DEVICE, DEVICE)
HERE = jax.default_backend() == BACKEND and (BACKEND == "gpu" or "BENCH_DEVICE" in os.environ)
LIMIT = float(os.environ.get("BENCH_TEST_SECONDS", "60"))
"""Seconds for each test."""
pytestmark = pytest.mark.skipif(not HERE, reason=f"needs JAX on {DEVICE}, which is on {jax.default_backend()}")


@pytest.fixture(autouse=True)
def nothing_hangs() -> Any:
    """A kernel that waits for ever ends its process, with the test's name in the trace; pytest-xdist starts another."""
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def broken_contexts_end_their_process() -> Any:
    """After an illegal access nothing works any more in a process: with pytest-xdist the next test has another."""
    yield
    try:
        jax.block_until_ready(jnp.zeros(1) + 1)
    except Exception:
        os._exit(1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("which", [0, 1], ids=["powers-of-two", "uneven"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_kernels(name: str, which: int, dtype: str) -> None:
    _check(name, which, dtype)


@pytest.mark.parametrize("which", [0, 1], ids=["powers-of-two", "uneven"])
@pytest.mark.parametrize("name", sorted(ALL.keys() - WORKLOADS.keys()))
def test_programs(name: str, which: int) -> None:
    _check(name, which, "float32")


def _check(name: str, which: int, dtype: str) -> None:
    assert not faults(name, which, dtype)
