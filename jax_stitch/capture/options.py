"""XLA's options for the analysis compilation: its own passes and fusions, but operations that we can read.

Library calls (Triton, cuBLAS, cuDNN, CUB, oneDNN, YNNPACK) stay ``dot``, ``convolution``, ``sort`` and so on: they are
opaque to the planner, and the rebuilt program leaves it to XLA to make them again. Rewrites that split one operation
into a sequence for the sake of one kernel generator (softmax in Triton, split-K, prefix sums in blocks) stay off too
where XLA can do without them.

A pass name unknown to this XLA has no effect, so the lists name the passes of all supported versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from jax_stitch.devices import Device

_GPU_PASSES = (
    # matrix products
    "triton-gemm-rewriter",
    "cublas-gemm-rewriter",
    "gemm-rewriter",
    "gemv-rewriter",
    "splitk-rewriter",
    "scaled-dot-rewriter",
    "block-scaling-rewriter",
    "cublas-pad-for-gemms",
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
    "scan-rewriter",
    "associative-scan-rewriter",
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


def analysis_options(device: Device) -> Mapping[str, str | bool]:
    """Compiler options for the HLO that is planned on."""
    if device.kind == "cpu":
        return MappingProxyType({"xla_disable_hlo_passes": ",".join(_CPU_PASSES)})
    return MappingProxyType({"xla_gpu_enable_triton_gemm": False, "xla_disable_hlo_passes": ",".join(_GPU_PASSES)})
