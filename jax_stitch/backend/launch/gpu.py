"""Kernels on an NVIDIA GPU by an FFI handler of our own: the second way beside XLA's call for PTX (``ptx.py``).

``gpu_handler.cc`` is compiled by the C++ compiler of the machine, at its first use and once; it takes neither CUDA's
headers nor a driver to do that. It loads a kernel's machine code, or its PTX where the driver does not take that, and
launches on XLA's stream, also while XLA captures a CUDA graph. Kernels whose blocks wait for each other are launched
cooperatively: the driver starts all blocks of such a kernel, or refuses it.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jax
import jaxlib
import numpy as np

from jax_stitch.backend.compile.host import load_library
from jax_stitch.backend.compile.ptx import PtxKernel
from jax_stitch.backend.launch import shipped

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource

TARGET = "jax_stitch_gpu_kernel"
SOURCE = Path(__file__).parent / "gpu_handler.cc"
STAGES: Mapping[str, str] = {
    "instantiate": "JaxStitchGpuBind",
    "initialize": "JaxStitchGpuPrepare",
    "execute": "JaxStitchGpuLaunch",
}


def attributes(kernel: PtxKernel, source: KernelSource) -> dict[str, object]:
    """Return the attributes of a call to a kernel: all of it is in the program, which any process can run."""
    return {
        "id": kernel.id,
        "name": kernel.name,
        "ptx": kernel.ptx,
        "cubin": base64.b64encode(kernel.cubin).decode(),
        "grid": np.int64(source.grid),
        "block": np.int64(source.block),
        "shared": np.int64(source.shared_bytes),
        "cluster": np.int64(source.cluster),
        "cooperative": np.int64(source.waits),
    }


@functools.cache
def register() -> None:
    """Make the handler known to XLA. Raises ``CompilerMissing`` and what else can be wrong with a compiler."""
    register_from(library(), "CUDA", TARGET)


def register_from(handler: ctypes.CDLL, platform: str, target: str) -> None:
    """Make the handler of a library known under a name."""
    parts = {"type_id": handler.jax_stitch_gpu_call_id, "type_info": handler.jax_stitch_gpu_call_info}
    for part in parts.values():
        part.restype = ctypes.c_void_p
    state = {name: jax.ffi.pycapsule(ctypes.c_void_p(part())) for name, part in parts.items()}
    jax.ffi.register_ffi_type(f"{target}_call", cast(Any, state), platform=platform)
    stages = {stage: jax.ffi.pycapsule(getattr(handler, name)) for stage, name in STAGES.items()}
    jax.ffi.register_ffi_target(target, stages, platform=platform)


def library() -> ctypes.CDLL:
    """Return the handler, compiled before or now."""
    folders = shipped.include_folders()
    parts = (SOURCE, *sorted(folders[0].glob("*.h")), folders[1] / "xla" / "ffi" / "api" / "c_api.h")
    content = hashlib.sha256(b"".join(path.read_bytes() for path in parts)).hexdigest()
    text = SOURCE.read_text(encoding="utf-8")
    return load_library("FFI handler for GPUs", text, folders, f"jaxlib {jaxlib.__version__} {content}")
