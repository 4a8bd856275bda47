"""A small kernel, for both targets, and a cache folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jax_stitch.emit.source import KernelSource
from jax_stitch.graph.model import TensorType

TEXT = """#include "scalar.h"
#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(256) NAME(const void* in, void* out) {
  const long i = blockIdx.x * 256 + threadIdx.x;
  static_cast<float*>(out)[i] = st::exp(static_cast<const float*>(in)[i]) + VALUE;
}
#else
extern "C" void NAME(void** buffers, int64_t first, int64_t last) {
  const float* in = static_cast<const float*>(buffers[0]);
  float* out = static_cast<float*>(buffers[1]);
  for (int64_t i = 256 * first; i < 256 * last; ++i) out[i] = st::exp(in[i]) + VALUE;
}
#endif
"""


def make(name: str = "kernel", value: str = "1.0f", size: int = 1024) -> KernelSource:
    tensor = TensorType("f32", (size,))
    text = TEXT.replace("NAME", name).replace("VALUE", value)
    return KernelSource(name, text, (tensor,), (tensor,), size // 256, 256, 0)


@pytest.fixture
def source() -> Callable[..., KernelSource]:
    return make


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache folder, empty; kernels loaded before are forgotten."""
    from jax_stitch.backend.compile import host

    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(host, "_loaded", {})
    return tmp_path / "cache" / "kernels"
