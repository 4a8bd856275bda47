"""XLA's options for the analysis compilation: its own passes and fusions, but operations that we can read.

Library calls (Triton, cuBLAS, cuDNN, CUB, oneDNN, YNNPACK) stay ``dot``, ``convolution``, ``sort`` and so on: they are
opaque to the planner, and the rebuilt program leaves it to XLA to make them again. Rewrites that split one operation
into a sequence for the sake of one kernel generator (softmax in Triton, prefix sums in blocks) stay off too where XLA
can do without them. Split-K stays on: the sum that it leaves behind a product is one more thing to stitch; so does the
padding of odd products of half precision, which the rebuilt program would else get as kernels of its own.

A pass name unknown to this XLA has no effect, so the lists name the passes of all supported versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from jax_stitch.devices import Device
from jax_stitch.frontend.capture.client import Option

Options = Mapping[str, Option]

_GPU_PASSES = (
    # matrix products
    "triton-gemm-rewriter",
    "cublas-gemm-rewriter",
    "gemm-rewriter",
    "gemv-rewriter",
    "scaled-dot-rewriter",
    "block-scaling-rewriter",
    # convolutions and normalisations of cuDNN
    "conv-rewriter",
    "conv-fusion-rewriter",
    "conv-padding-legalization",
    "cudnn-fused-convolution-rewriter",
    "cudnn_pad_for_convolutions",
    "norm-rewriter",
    # sorting, selection, prefix sums
    "sort-rewriter",
    "topk-rewriter",
    "topk-specializer",
    "topk-splitter",
    "scan-rewriter",  # Not "associative-scan-rewriter": jax 0.11's scans would become serial loops.
    "reduce-window-rewriter",
    # Reductions for Triton. Not "tree-reduction-rewriter": the fusion passes abort the process on what it has not seen.
    "triton-softmax-rewriter",
)

_CPU_PASSES = (
    "dot-library-rewriter",
    "ynn-fusion",
    "onednn-fusion",
    "tree_reduction_rewriter",
    "reduce-window-rewriter",
)


_TEXT_ALONE: Options = MappingProxyType({"xla_backend_optimization_level": 0})
"""Of the CPU's compiler we want the HLO. It has no way to stop there, but its machine code need not be good: half the
time goes into that."""


def analysis_options(device: Device) -> tuple[Options, ...]:
    """Return compiler options for the HLO that is planned on: what to try in order.

    Products stay in Triton's fusions where XLA puts them there: these show their ``dot``, and which elementwise
    operations XLA runs inside a product, where the planner had better leave them. Where XLA finds no tiles for one,
    plain products; and what it cannot compile plainly either (of int8, or by a bf16 algorithm), as it does by default.
    """
    if device.target.is_host:
        return MappingProxyType({**_TEXT_ALONE, **_without(_CPU_PASSES)}), _TEXT_ALONE
    default: Options = MappingProxyType({})
    plain = MappingProxyType({"xla_gpu_enable_triton_gemm": False, **_without(_GPU_PASSES)})
    products_by_triton = _without(p for p in _GPU_PASSES if p != "triton-gemm-rewriter")
    return products_by_triton, plain, default


def default_options(device: Device) -> tuple[Options, ...]:
    """Return compiler options for what ``jax.jit`` would run: XLA's own; then, for a GPU, those without products by
    Triton.

    With no GPU at hand XLA cannot try out tile sizes, and for some small odd products it finds none that Triton takes.
    On a real GPU, where it measures, these go to cuBLAS: as they do without Triton.
    """
    if device.target.is_host:
        return (_TEXT_ALONE,)
    own: Options = MappingProxyType({})
    return own, MappingProxyType({"xla_gpu_enable_triton_gemm": False})


def _without(passes: Iterable[str]) -> Options:
    return MappingProxyType({"xla_disable_hlo_passes": ",".join(passes)})
