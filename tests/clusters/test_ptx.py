"""Kernels in clusters as NVIDIA's compilers take them: the launch's clusters are in the PTX, and nothing spills."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.backend.compile import KernelCompileError, NvrtcMissing, compile_ptx, nvrtc
from jax_stitch.backend.launch import ptx
from jax_stitch.frontend.capture import capture
from jax_stitch.jit.tune.spills import fit
from jax_stitch.pipeline import stitch_capture
from tests.clusters.laid_out import FUNCTIONS, arguments, made

try:
    nvrtc.nvrtc()
except NvrtcMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

BARRIER = "barrier.cluster.arrive.release.aligned"


@pytest.mark.parametrize("cluster", [2, 8])
@pytest.mark.parametrize("sm", ["sm_90", "sm_100"])
def test_the_size_of_the_clusters_is_in_the_kernel(sm: str, cluster: int) -> None:
    """An ordinary launch then has them, of a grid of whole clusters."""
    (kernel,) = made("softmax", arguments("softmax", 3, 5000, np.float32), cluster).stitched.kernels
    compiled = compile_ptx(kernel.source, sm)
    assert f".reqnctapercluster {cluster}, 1, 1" in compiled.ptx
    # All meet before the first row, and for each of its two reductions.
    assert compiled.ptx.count(BARRIER) == 3 and compiled.ptx.count("mapa.u64") == 2
    attributes = ptx.attributes(compiled, kernel.source)
    assert attributes["grid_x"] == 3 * cluster and attributes["block_x"] == kernel.source.block


def test_older_devices_refuse_them() -> None:
    """So that no schedule for one may have them."""
    (kernel,) = made("softmax", arguments("softmax", 3, 5000, np.float32), 4).stitched.kernels
    with pytest.raises(KernelCompileError, match="__cluster_dims__"):
        compile_ptx(kernel.source, "sm_80")


@pytest.mark.parametrize("device", ["h200", *(pytest.param(d, marks=pytest.mark.slow) for d in ("a100", "b200"))])
@pytest.mark.parametrize(
    ("name", "rows", "places", "dtype"),
    [
        ("softmax", 64, 262_144, jnp.float32),
        ("softmax", 512, 128_256, jnp.float32),
        ("cross_entropy_and_gradient", 512, 128_256, jnp.float32),
        ("cross_entropy_and_gradient", 64, 262_144, jnp.bfloat16),
        ("layer_norm_gradient", 64, 131_072, jnp.float16),
    ],
)
def test_nothing_spills(name: str, rows: int, places: int, dtype: Any, device: str) -> None:
    target = devices.get(device)
    shapes = [jax.ShapeDtypeStruct((rows, places), dtype)]
    if name != "softmax":
        shapes.append(jax.ShapeDtypeStruct((rows,), jnp.int32) if "entropy" in name else shapes[0])
    assert target.sm is not None
    made_for = fit(stitch_capture(capture(FUNCTIONS[name], shapes, target), target), target.sm)
    for kernel in made_for.kernels:
        compiled = compile_ptx(kernel.source, target.sm)
        assert not compiled.spill_bytes and not compiled.stack_bytes
        assert kernel.source.shared_bytes <= target.shared_per_block_optin
        assert kernel.source.cluster <= target.cluster_blocks
        assert (".reqnctapercluster" in compiled.ptx) == (BARRIER in compiled.ptx) == (kernel.source.cluster > 1)
