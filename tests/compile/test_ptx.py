"""NVRTC with no GPU: every scalar function on every architecture, and PTX that older drivers take."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jax_stitch.backend.compile import KernelCompileError, NvrtcMissing, PtxKernel, compile_all, compile_ptx, nvrtc, ptx
from jax_stitch.emit.source import KernelSource
from jax_stitch.graph.model import TensorType

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

try:
    nvrtc.nvrtc()
except NvrtcMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

UNARY_FLOAT = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "tanh",
    "logistic",
    "sqrt",
    "rsqrt",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "erf",
    "abs",
    "negate",
    "sign",
    "floor",
    "ceil",
    "trunc",
    "round_half_even",
    "round_half_away",
]
BINARY_FLOAT = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "atan2", "remainder"]
UNARY_INTEGER = ["abs", "negate", "sign", "bitwise_not", "popcnt", "count_leading_zeros"]
BINARY_INTEGER = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "remainder",
    "maximum",
    "minimum",
    "power",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "shift_left",
    "shift_right_logical",
    "shift_right_arithmetic",
]
INTEGERS = [f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)]
TYPES = ["bool", *INTEGERS, "st::f16", "st::bf16", "float", "double"]


def everything() -> str:
    """A kernel that uses every function on every type it takes."""
    lines = []
    for t in ("float", "double"):
        lines += [f"{{ {t} x = *({t}*)p; " + " ".join(f"*({t}*)p = x = st::{f}(x);" for f in UNARY_FLOAT)]
        lines += [" ".join(f"*({t}*)p = x = st::{f}(x, 3);" for f in BINARY_FLOAT) + " *p = st::total_order(x);"]
        lines += [
            f"*({t}*)p = st::clamp(x, 1, 2); *p = st::is_finite(x); *({t}*)p = st::reduce_precision<5, 10>(x); }}"
        ]
    for t in INTEGERS:
        lines += [f"{{ {t} x = *({t}*)p; " + " ".join(f"*({t}*)p = x = st::{f}(x);" for f in UNARY_INTEGER)]
        lines += [
            " ".join(f"*({t}*)p = x = st::{f}(x, 3);" for f in BINARY_INTEGER) + f" *({t}*)p = st::clamp(x, 1, 2); }}"
        ]
    lines += [f"*({b}*)q = st::convert<{b}>(*({a}*)p);" for a in TYPES for b in TYPES]
    lines += ["*(st::bf16*)p = st::bitcast<st::bf16>(*(short*)q); *(double*)p = st::bitcast<double>(*(int64_t*)q);"]
    lines += ["*(float*)p = st::round_to<st::f16>(*(float*)q);"]
    body = "\n  ".join(lines)
    return f'#include "scalar.h"\nextern "C" __global__ void every(volatile int* p, volatile int* q) {{\n  {body}\n}}\n'


def every_function() -> KernelSource:
    tensor = TensorType("s32", (8,))
    return KernelSource("every", everything().replace("volatile ", ""), (tensor,), (tensor,), 1, 32, 0)


def version(kernel: PtxKernel) -> tuple[int, int]:
    found = re.search(r"^\.version (\d+)\.(\d+)", kernel.ptx, re.MULTILINE)
    assert found
    return int(found[1]), int(found[2])


def assembler() -> str | None:
    beside = Path(nvrtc.nvrtc().path).parent.parent / "bin" / "ptxas"
    return str(beside) if beside.exists() else shutil.which("ptxas")


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_every_function(sm, tmp_path):
    if int(sm[3:]) not in nvrtc.nvrtc().architectures():
        pytest.skip(f"this NVRTC has no {sm}")
    kernel = compile_ptx(every_function(), sm)
    assert kernel.cubin[:4] == b"\x7fELF"
    assert f".target {sm}" in kernel.ptx
    assert kernel.registers > 16
    # Drivers refuse PTX of a version they do not know, and an assembler PTX with what its version does not have.
    assert version(kernel) <= max(ptx._ISA_FLOOR, ptx._ISA[int(sm[3:])])
    if tool := assembler():
        (tmp_path / "k.ptx").write_text(kernel.ptx)
        subprocess.run([tool, f"-arch={sm}", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"], check=True)


@pytest.mark.parametrize("sm", ("sm_80", "sm_90"))
def test_ptx_of_an_old_version_has_no_newer_hints(sm, tmp_path):
    """The first GPU refused a kernel: NVRTC 13 says of a load which bytes are used, which PTX 8.0 has no word for."""
    text = """#include "scalar.h"
extern "C" __global__ void hinted(const float* in, float* out) {
  __shared__ __align__(16) float of[32];
  of[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 7; ++k) sum += of[(threadIdx.x / 16) * 16 + k];
  out[threadIdx.x] = sum;
}
"""
    tensor = TensorType("f32", (32,))
    kernel = compile_ptx(KernelSource("hinted", text, (tensor,), (tensor,), 1, 32, 0), sm)
    assert version(kernel) < (8, 3) and "used_bytes_mask" not in kernel.ptx
    if tool := assembler():
        (tmp_path / "k.ptx").write_text(kernel.ptx)
        subprocess.run([tool, f"-arch={sm}", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"], check=True)


def test_many_parameters_raise_the_version(tmp_path):
    count = 588
    parameters = ", ".join(f"float* p{n}" for n in range(count))
    text = f'#include "scalar.h"\nextern "C" __global__ void wide({parameters}) {{ p{count - 1}[0] = p0[0]; }}\n'
    tensors = (TensorType("f32", (1,)),) * (count - 1)
    kernel = compile_ptx(KernelSource("wide", text, tensors, tensors[:1], 1, 32, 0), "sm_90")
    assert version(kernel) == (8, 1)
    if tool := assembler():
        (tmp_path / "k.ptx").write_text(kernel.ptx)
        subprocess.run([tool, "-arch=sm_90", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"], check=True)


def test_resources(source, cache):
    text = """#include "scalar.h"
extern "C" __global__ void k(const int* in, float* out) {
  __shared__ float s[256];
  float local[64];
  for (int i = 0; i < 64; ++i) local[in[i] & 63] = i;
  s[threadIdx.x] = local[in[threadIdx.x] & 63];
  __syncthreads();
  out[threadIdx.x] = s[255 - threadIdx.x];
}"""
    tensor = TensorType("s32", (256,))
    kernel = compile_ptx(KernelSource("k", text, (tensor,), (tensor,), 1, 256, 0), "sm_80")
    assert kernel.shared_bytes == 1024
    assert kernel.stack_bytes == 256  # an array indexed at run time
    assert kernel.spill_bytes == 0
    assert compile_ptx(source(), "sm_80").stack_bytes == 0


def test_cached(source, cache, monkeypatch):
    first = compile_ptx(source(), "sm_80")
    monkeypatch.setattr(nvrtc.Nvrtc, "compile", lambda *_: pytest.fail("compiled again"))
    assert compile_ptx(source(), "sm_80") == first
    with pytest.raises(pytest.fail.Exception):
        compile_ptx(source(), "sm_90")


def test_error_shows_the_line(source, cache):
    with pytest.raises(KernelCompileError) as raised:
        compile_ptx(source(value="undefined_thing"))
    marked = [line for line in str(raised.value).splitlines() if line.startswith(">")]
    assert len(marked) == 1 and "undefined_thing" in marked[0]
    assert "NVRTC" in str(raised.value)


def test_unknown_architectures(source, cache):
    with pytest.raises(NvrtcMissing, match="cannot compile for sm_30"):
        compile_ptx(source(), "sm_30")
    with pytest.raises(ValueError, match="sm_90"):
        compile_ptx(source(), "h200")


def test_nvrtc_missing(source, cache, monkeypatch):
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(()))
    nvrtc.nvrtc.cache_clear()
    try:
        with pytest.raises(NvrtcMissing, match="pip install nvidia-cuda-nvrtc"):
            compile_ptx(source())
    finally:
        nvrtc.nvrtc.cache_clear()


def test_compile_all(source, cache):
    sources = [source(name=f"kernel{n}") for n in range(4)]
    kernels = compile_all(sources, "sm_90")
    assert [k.name for k in kernels] == [s.name for s in sources]


def test_old_compilers_are_asked_for_no_more_parameters_than_they_take(source, cache, monkeypatch):
    """NVRTC before 12.1 said "formal parameter space overflowed" of a kernel that had been planned."""
    assert ptx.most_parameter_bytes((12, 0)) == 4096 and ptx.most_parameter_bytes((12, 1)) == 32764
    tensors = (TensorType("f32", (1,)),)
    wide = KernelSource("wide", "", tensors * 511, tensors * 2, 1, 32, 0)
    monkeypatch.setattr(ptx, "require", lambda _: nvrtc.Nvrtc(path=None, version=(12, 0), library=None))
    with pytest.raises(KernelCompileError, match=r"4104 bytes of parameters are more than the 4096"):
        compile_ptx(wide)
