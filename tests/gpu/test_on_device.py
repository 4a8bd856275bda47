"""Every workload, stitched, on the attached GPU: `bench/gpu.sh` runs this.

``BENCH_DEVICE=cpu`` runs the same on a CPU, for the sake of the script; the kernels' CPU side has its own tests.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bench.workloads import ALL, WORKLOADS
from jax_stitch.api import stitch_jit
from jax_stitch.report.accuracy import agreement, reference

DEVICE = os.environ.get("BENCH_DEVICE", "cuda")
BACKEND = {"cuda": "gpu"}.get(DEVICE, DEVICE)
HERE = jax.default_backend() == BACKEND and (BACKEND == "gpu" or "BENCH_DEVICE" in os.environ)
pytestmark = pytest.mark.skipif(not HERE, reason=f"needs JAX on {DEVICE}, which is on {jax.default_backend()}")


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
    workload = ALL[name]
    function, args = workload.make(workload.test_sizes[which], jnp.dtype(dtype))
    plain = jax.jit(function)(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        stitched = stitch_jit(function)(*args)
        again = stitch_jit(function)(*args)
    wrong = [str(leaf) for leaf in agreement(stitched, plain, reference(function, args)) if not leaf.agrees]
    assert not wrong, "\n".join(wrong)
    # A race, or an arrival counter that is not back at zero, shows at the second call at the latest.
    wrong = [str(leaf) for leaf in agreement(again, plain, reference(function, args)) if not leaf.agrees]
    assert not wrong, "at the second call: " + "\n".join(wrong)
