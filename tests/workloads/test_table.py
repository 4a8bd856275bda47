"""The design's table, row by row, planned for an H200: launches per call, and bytes over what has to move."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from bench.workloads import ALL
from jax_stitch import stitch_jit

TABLE = {
    # workload: launches that are not library calls, bytes / bound
    "softmax_last": (1, 1.0),
    "layer_norm": (1, 1.0),
    "rms_norm_rope": (1, 1.0),
    "softmax_long_row": (1, 1.5),
    "softmax_first": (1, 1.5),
    "softmax_middle": (1, 1.5),
    "layer_norm_gradient": (2, 1.1),
    "layer_norm_and_gradient": (2, 1.1),
    "residual_dropout_layer_norm": (1, 1.05),
    "cross_entropy": (1, 1.05),
    "cross_entropy_gradient": (1, 1.05),
    # 64 channels fill no GPU: all its blocks share each of them, and read the images again after each sum, as XLA does.
    "batch_norm": (2, 2.05),
    "batch_norm_gradient": (2, 3.4),
    "adamw": (2, 1.05),
    "adamw_clipped": (3, 1.3),
    "cumsum": (1, 1.05),
    "logsumexp": (1, 1.05),
    "standardise": (2, 2.05),
}
MORE_THAN_XLA = {"batch_norm": 1.005, "batch_norm_gradient": 1.12}
"""Where one launch in place of 6 and of 13 is bought with bytes: the blocks' partial sums, and a ninth more."""
SLOW = {"adamw", "adamw_clipped"}
"""Programs that XLA needs many seconds for."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in TABLE])
def test_row(name: str) -> None:
    launches, ratio = TABLE[name]
    workload = ALL[name]
    function, args = workload.abstract(workload.size, jnp.float32)
    plan = stitch_jit(function).plan(*args, device="h200")
    assert plan.launches <= launches, str(plan)
    assert plan.bytes <= ratio * plan.bound_bytes, str(plan)
    assert plan.bytes <= plan.xla_bytes * MORE_THAN_XLA.get(name, 1.0)
    blocks = max(kernel.launch.grid for kernel in plan.kernels)
    assert blocks >= 0.4 * plan.device.multiprocessors, "most of the device has nothing to do"
