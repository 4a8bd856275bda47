"""Kernels called from programs for a GPU, compiled by XLA for one that is only described."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies

from jax_stitch.backend.compile import NvrtcMissing, compile_host, compile_ptx, nvrtc
from jax_stitch.backend.launch import Layouts, call
from jax_stitch.emit.source import KernelSource
from jax_stitch.graph.model import TensorType

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y:
  65535 block_dim_limit_z: 65535 memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 151397597184 shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200"
"""

try:
    nvrtc.nvrtc()
except NvrtcMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.fixture(scope="module")
def described() -> jax.sharding.NamedSharding:
    try:
        topology = topologies.get_topology_desc(platform="cuda", topology_name="", target_config=H200, topology="1x1x1")
    except Exception as error:
        pytest.skip(f"no CUDA plugin: {error}")
    mesh = topologies.make_mesh(topo=topology, mesh_shape=(1,), axis_names=("x",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def two_sums(size: int = 1024, shared: int = 0) -> KernelSource:
    tensor = TensorType("f32", (size // 256, 256))
    text = """#include "scalar.h"
#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(256) two(const float* a, const float* b, float* s, float* d) {
  const long i = blockIdx.x * 256 + threadIdx.x;
  s[i] = a[i] + b[i];
  d[i] = a[i] - b[i];
}
#else
extern "C" void two(void** p, int64_t first, int64_t last) {
  float **f = (float**)p;
  for (int64_t i = first * 256; i < last * 256; ++i) { f[2][i] = f[0][i] + f[1][i]; f[3][i] = f[0][i] - f[1][i]; }
}
#endif
"""
    return KernelSource("two", text, (tensor, tensor), (tensor, tensor), size // 256, 256, shared)


def compiled_text(described, f, *shapes) -> str:
    arguments = [jax.ShapeDtypeStruct(s, np.float32, sharding=described) for s in shapes]
    return jax.jit(f).lower(*arguments).compile().as_text()


def calls(text: str) -> list[str]:
    return [line for line in text.splitlines() if 'custom_call_target="__gpu$xla.gpu.ptx"' in line]


def test_one_launch_for_two_outputs(described):
    source = two_sums()
    kernel = compile_ptx(source, "sm_90")
    text = compiled_text(described, lambda a, b: call(kernel, source, a, b), (4, 256), (4, 256))
    (line,) = calls(text)
    assert "grid_x = 4 : i32" in line and "block_x = 256 : i32" in line and "shared_mem_bytes = 0 : i32" in line


def test_in_a_loop_with_aliases(described):
    source = two_sums(shared=100_000)
    kernel = compile_ptx(source, "sm_90")

    def loop(a, b):
        return jax.lax.fori_loop(0, 5, lambda _, c: call(kernel, source, *c, aliases={0: 0, 1: 1}), (a, b))

    (line,) = calls(compiled_text(described, loop, (4, 256), (4, 256)))
    assert "output_to_operand_aliasing" in line and "shared_mem_bytes = 100000 : i32" in line


def test_asked_for_layouts_need_no_copy(described):
    source = two_sums()
    kernel = compile_ptx(source, "sm_90")
    columns = Layouts(((0, 1), (0, 1)), ((0, 1), (0, 1)))

    def f(a, b):
        s, d = call(kernel, source, a.T, b.T, layouts=columns)
        return s.T, d.T

    text = compiled_text(described, f, (256, 4), (256, 4))
    assert len(calls(text)) == 1
    assert "copy(" not in text and "transpose(" not in text


def test_chosen_by_platform(described):
    """One traced function, either kernel: what a function stitched for both does."""
    source = two_sums()
    on_gpu, on_cpu = compile_ptx(source, "sm_90"), compile_host(source)

    def f(a, b):
        return jax.lax.platform_dependent(
            a, b, cpu=lambda *x: call(on_cpu, source, *x), cuda=lambda *x: call(on_gpu, source, *x)
        )

    assert len(calls(compiled_text(described, f, (4, 256), (4, 256)))) == 1
    if jax.default_backend() == "cpu":
        s, d = jax.jit(f)(jnp.ones((4, 256)), jnp.ones((4, 256)))
        assert (np.asarray(s) == 2).all() and (np.asarray(d) == 0).all()


def test_too_many_buffers():
    """XLA would compile it, and fail at the first launch."""
    kernel = compile_ptx(two_sums(), "sm_90")
    scalar = TensorType("f32", ())
    source = KernelSource("wide", "", (scalar,) * 1000, (scalar,) * 24, 1, 32, 0)
    with pytest.raises(ValueError, match="1025 buffers"):
        jax.eval_shape(lambda *xs: call(kernel, source, *xs), *[np.float32(0)] * 1000)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")
@pytest.mark.parametrize("shared", [0, 100_000])
def test_runs(shared):
    source = two_sums(1 << 20, shared)
    major, minor = jax.devices()[0].compute_capability.split(".")
    kernel = compile_ptx(source, f"sm_{major}{minor}")
    a = jnp.arange(1 << 20, dtype=jnp.float32).reshape(-1, 256)
    s, d = jax.jit(lambda a: call(kernel, source, a, a))(a)  # one buffer as two operands stays two parameters
    np.testing.assert_array_equal(s, 2 * a)
    np.testing.assert_array_equal(d, 0)
