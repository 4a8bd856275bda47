"""Kernels on the CPU: one FFI handler, compiled once per machine, that finds kernels by id."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jaxlib
import numpy as np

from jax_stitch.compile.host import HostKernel, load_library
from jax_stitch.launch.element_types import byte_size

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource

TARGET = "jax_stitch_host_kernel"

_lock = threading.Lock()
_registered: dict[str, HostKernel] = {}
"""Every kernel ever called, kept loaded: compiled programs refer to them for as long as the process lives."""


def register(kernel: HostKernel) -> None:
    """Makes a kernel callable by XLA programs of this process, by its id."""
    with _lock:
        if kernel.id not in _registered:
            _handler().jax_stitch_register(kernel.id.encode(), ctypes.c_void_p(kernel.address))
            _registered[kernel.id] = kernel


def prepare(kernel: HostKernel, source: KernelSource, work: int | None) -> dict[str, object]:
    """Registers a kernel; returns the attributes of a call to it.

    They name the kernel by its id, not its address, so that a program from a cache finds it too.
    """
    register(kernel)
    touched = sum(byte_size(t) for t in (*source.inputs, *source.outputs)) if work is None else work
    return {
        "kernel": kernel.id,
        "name": kernel.name,
        "phases": np.array(source.host_phases, np.int64),
        "bytes": np.int64(touched),
    }


@functools.cache
def _handler() -> ctypes.CDLL:
    """The handler's library, registered with XLA."""
    text = (Path(__file__).parent / "handler.cc").read_text()
    folder = Path(jax.ffi.include_dir())
    content = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.rglob("*.h")))).hexdigest()
    library = load_library("FFI handler", text, [folder], f"jaxlib {jaxlib.__version__} {content}")
    library.jax_stitch_register.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    library.jax_stitch_register.restype = None
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.JaxStitchLaunch), platform="cpu")
    return library
