"""Kernels on an NVIDIA GPU: XLA's built-in custom call that launches PTX.

The call becomes an ordinary XLA kernel launch, captured in CUDA graphs like XLA's own. Read from XLA's sources: the
kernel's parameters are the operands' pointers, then the results' (never merged where two are the same buffer), and
XLA sets the function's opt-in limit before each launch, so that dynamic shared memory may exceed 48 KB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jax_stitch.backend.compile.ptx import PtxKernel

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource

TARGET = "__gpu$xla.gpu.ptx"
MAX_BUFFERS = 1024
"""XLA packs no more kernel parameters than this, and says so only at run time."""

MAX_MEETING = 1 << 16
"""Blocks that can be counted at a barrier (``backend/runtime/arrivals.h``); no GPU holds as many at a time."""


def attributes(kernel: PtxKernel, source: KernelSource) -> dict[str, object]:
    """Return the attributes of a call to a kernel. Raises ``ValueError`` where XLA could not launch it."""
    # The last one is for the result without elements (kernel_call.py).
    buffers = len(source.inputs) + len(source.outputs) + len(source.scratch) + bool(source.phases) + 1
    if buffers > MAX_BUFFERS:
        raise ValueError(
            f"The kernel {kernel.name!r} has {buffers} buffers; XLA launches kernels of up to {MAX_BUFFERS}"
        )
    if source.phases and source.grid > MAX_MEETING:
        raise ValueError(f"The kernel {kernel.name!r} has {source.grid} blocks; {MAX_MEETING} can meet at a barrier")
    one = np.int32(1)
    return {
        "name": kernel.name,
        "kernel_type": "ptx",
        "kernel_data": kernel.ptx,
        "grid_x": np.int32(source.grid),
        "grid_y": one,
        "grid_z": one,
        "block_x": np.int32(source.block),
        "block_y": one,
        "block_z": one,
        "shared_mem_bytes": np.int32(source.shared_bytes),
    }
