"""Kernels as CUDA would run them, threads, barriers, shuffles and all, on a CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jax_stitch.emit import KernelSource
from jax_stitch.emit.scalar import STORAGE
from jax_stitch.pipeline import Stitched

PRELUDE = (Path(__file__).parent / "cuda_on_host.h").read_text()
SHARED = "extern __shared__ __align__(16) char shared[];"


def emulated(source: KernelSource) -> KernelSource:
    """The kernel's CUDA side behind the entry point of its host side."""
    assert SHARED in source.text
    written = (*source.outputs, *source.scratch)
    types = [f"const {STORAGE[t.dtype]}*" for t in source.inputs] + [f"{STORAGE[t.dtype]}*" for t in written]
    arguments = ", ".join(f"static_cast<{t}>(buffers_[{k}])" for k, t in enumerate(types))
    if source.phases:
        body = f"""
  const auto run = [=](int64_t block, int threads, size_t shared_bytes) {{
    buffers_ = buffers;
    cuda::run_block(call_, block, threads, shared_bytes);
  }};
  cuda::run_grid(run, {source.grid}, {source.block}, {source.shared_bytes});"""
    else:
        body = f"""
  buffers_ = buffers;
  for (int64_t b = first_block; b < last_block; ++b) {{
    cuda::run_block(call_, b, {source.block}, {source.shared_bytes});
  }}"""
    entry = f"""
static thread_local void** buffers_;
static const int slot_ = 5;
static void call_() {{ on_gpu({"&slot_, " if source.phases else ""}{arguments}); }}
extern "C" void {source.name}(void** buffers, int64_t first_block, int64_t last_block) {{
  (void)first_block, (void)last_block;{body}
}}
"""
    text = source.text.replace(SHARED, "char* const shared = cuda::shared();").replace(f" {source.name}(", " on_gpu(")
    # A launch whose blocks wait for each other is one task of the host's runtime.
    return replace(source, text=PRELUDE + text + entry, phases=(1,) if source.phases else ())


def as_on_a_gpu(made: Stitched) -> Stitched:
    return replace(made, kernels=tuple(replace(k, source=emulated(k.source)) for k in made.kernels))
