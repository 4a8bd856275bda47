"""The design's table at small sizes: launches, and bytes over the bound, from counted sectors."""

from __future__ import annotations

from typing import Any

import pytest

from bench.sectors import TABLE, Counted, Target, _chosen, _moved, count, table
from bench.workloads import ALL
from bench.workloads.base import Size
from jax_stitch import devices
from jax_stitch.backend.compile import NvrtcMissing, nvrtc
from jax_stitch.checking import BufferTraffic
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from jax_stitch.pipeline import stitch_capture

H200 = devices.get("h200")


@pytest.fixture
def nvidias_compiler() -> None:
    """How many blocks a multiprocessor holds is the compiler's to say."""
    if not cuda_plugin_installed():
        pytest.skip("needs JAX's CUDA plugin")
    try:
        nvrtc.nvrtc()
    except NvrtcMissing as missing:
        pytest.skip(str(missing))


SIZES: dict[str, tuple[Size, float]] = {
    "softmax_last": ((256, 1024), 1.001),
    "layer_norm": ((256, 1024), 1.01),
    "rms_norm_rope": ((256, 1024), 1.2),
    "softmax_long_row": ((4, 65536), 1.501),
    "softmax_first": ((512, 256), 1.001),
    "softmax_middle": ((8, 64, 128), 1.001),
    "layer_norm_gradient": ((256, 1024), 1.5),
    "layer_norm_and_gradient": ((256, 1024), 1.5),
    "residual_dropout_layer_norm": ((128, 512), 1.2),
    "cross_entropy": ((256, 1024), 1.05),
    "cross_entropy_gradient": ((256, 1024), 1.05),
    "negative_log_likelihood": ((256, 1024), 1.05),
    "negative_log_likelihood_gradient": ((256, 1024), 1.05),
    "logsumexp": ((256, 1024), 1.01),
    "cumsum": ((256, 1024), 1.01),
}
"""Where each row is counted, and the bytes it may move: those of partial sums weigh more the fewer rows there are."""

FAST = {"softmax_long_row", "softmax_middle", "layer_norm_gradient", "negative_log_likelihood_gradient", "logsumexp"}
"""A row of each kind: a long row, a strided one, sums along both axes, a look-up, a short result."""


def cases() -> list[Any]:
    found = []
    for target in TABLE:
        for dtype in ("float32", "bfloat16"):
            fast = dtype == "float32" and target.workload in FAST
            marks = [] if fast else [pytest.mark.slow]
            found.append(pytest.param(target, dtype, id=f"{target.workload}-{dtype}", marks=marks))
    return found


@pytest.mark.usefixtures("nvidias_compiler")
@pytest.mark.parametrize(("target", "dtype"), cases())
def test_the_designs_table(target: Target, dtype: str) -> None:
    """A value that is read twice, or kept in memory between kernels, or a row that is read by too few lanes."""
    size, most = SIZES.get(target.workload, (ALL[target.workload].test_sizes[0], 3.0))
    row = count(target, size, dtype, H200, most_blocks=16)
    assert row.launches <= target.launches, row
    assert not row.findings
    assert row.ratio <= most * (1.35 if dtype == "bfloat16" else 1), row
    assert row.ratio >= 0.99  # else something is not counted
    assert row.bytes <= row.bytes_of_warps * 1.001


@pytest.mark.usefixtures("nvidias_compiler")
def test_some_blocks_stand_for_all() -> None:
    target = Target("layer_norm", 1)
    whole, part = (count(target, (256, 512), "float32", H200, most_blocks=n) for n in (1 << 20, 16))
    assert (whole.blocks, part.blocks) == (whole.grid, 16)
    assert part.bytes == pytest.approx(whole.bytes, rel=1e-3)
    assert part.bytes_of_warps == pytest.approx(whole.bytes_of_warps, rel=1e-3)


@pytest.mark.usefixtures("nvidias_compiler")
def test_kernels_whose_blocks_wait_run_whole() -> None:
    function, shapes = ALL["layer_norm_gradient"].abstract((4096, 1024), "float32")
    for kernel in stitch_capture(capture(function, shapes, H200), H200).kernels:
        assert kernel.source.phases and _chosen(kernel, 16) is None


def test_what_the_cache_no_longer_holds_is_read_again() -> None:
    again = tuple(100 if k == 12 else 0 for k in range(32))
    read = BufferTraffic("in0", 300, 0, 200, 0, 200, 0, 0, 0, 0, again)
    assert _moved(read, 1000, 1.0, share=5000) == 32 * 200
    assert _moved(read, 1000, 1.0, share=4000) == 32 * 300
    assert _moved(read, 1000, 2.0, share=4000) == 32 * 600
    assert _moved(read, 250, 2.0, share=5000) == 32 * 250  # all there is


def test_rows_that_do_not_hold_are_told() -> None:
    row = Counted("w", (8,), "float32", 1, 3, 1, 110, 150, 200, 100, 1.05, 4, 8, 0)
    assert not row.holds and "1.10" in table([row], "h200") and "4 of 8" in table([row], "h200")
    assert Counted("w", (8,), "float32", 1, 3, 1, 104, 150, 200, 100, 1.05, 4, 8, 0).holds
    assert not Counted("w", (8,), "float32", 2, 3, 1, 100, 150, 200, 100, 1.05, 4, 8, 0).holds
    assert not Counted("w", (8,), "float32", 1, 3, 1, 100, 150, 200, 100, 1.05, 4, 8, 1).holds
