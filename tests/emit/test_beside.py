"""What NVIDIA's compiler makes of a choice between an input and what an earlier phase of the kernel has written.

Catches: one load for both by ``ld.global.nc``, which may see what was there before.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

from bench.proofs.ptx import Kernel
from jax_stitch.backend.compile import NvrtcMissing, compile_ptx, nvrtc
from jax_stitch.emit import kernel
from tests.fusion import forced

ARGUMENTS = (jax.ShapeDtypeStruct((4096, 512), "float32"), jax.ShapeDtypeStruct((512,), "float32"))


def joined(x: Any, y: Any) -> Any:
    sums = jnp.tanh(x).sum(0)
    both = jnp.concatenate([y, sums, y * 2])
    return both * jnp.exp(both), sums


def stale_reads() -> int:
    (made,) = forced.stitched(forced.hlo_of(joined, *ARGUMENTS), forced.device("h200")).kernels
    return len(Kernel(compile_ptx(made.source, "sm_90").ptx).stale_reads())


def test_no_read_passes_by_what_the_kernel_writes() -> None:
    try:
        nvrtc.nvrtc()
    except NvrtcMissing as missing:
        pytest.skip(str(missing))
    assert stale_reads() == 0
    with mock.patch.object(kernel, "read_beside", lambda part: part):
        assert stale_reads() > 0  # Else the compiler has changed, and the rule can go.
