"""Kernels for the CPU: C++ text to a loaded shared object."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jax_stitch.compile import cache, toolchain
from jax_stitch.compile.headers import RUNTIME, headers
from jax_stitch.emit.source import KernelSource

FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp-simd",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
)


@dataclass(frozen=True, slots=True)
class HostKernel:
    """A kernel in this process's memory.

    ``address`` is that of its function, ``void(void** buffers, int64_t first_block, int64_t last_block)``, good
    while this object lives.
    """

    name: str
    id: str
    """A hash of all that determines the kernel: the same in every process, unlike the address."""
    path: Path
    address: int
    library: ctypes.CDLL = field(repr=False, compare=False)


def compile_host(source: KernelSource) -> HostKernel:
    """Compiles a kernel for this machine's CPU, or finds it in the cache, and loads it.

    Raises ``CompilerMissing`` where there is no C++ compiler, ``KernelCompileError`` where it refuses the text.
    """
    options = (*FLAGS, f"-I{RUNTIME}")
    # Headers count by their content, so the folder they lie in is left out of the key.
    id = cache.key(
        kind="host",
        text=source.text,
        headers=dict(headers()),
        compiler=toolchain.identity(toolchain.compiler()),
        flags=FLAGS,
        processor=toolchain.processor(),
    )
    with _lock:
        kernel = _loaded.get(id)
    if kernel is None:
        path = cache.file_or_build(f"{id}.so", lambda: toolchain.shared_object(source.name, source.text, options))
        library = _open(path)
        address = ctypes.cast(getattr(library, source.name), ctypes.c_void_p).value
        assert address is not None
        with _lock:
            kernel = _loaded.setdefault(id, HostKernel(source.name, id, path, address, library))
    return kernel


def load_library(name: str, text: str, include: Sequence[Path], identity: str) -> ctypes.CDLL:
    """Compiles and loads a C++ text that is not a kernel (the FFI handler); ``identity`` stands for the included
    headers."""
    flags = ("-std=c++17", "-O2")
    id = cache.key(
        kind="library", text=text, include=identity, compiler=toolchain.identity(toolchain.compiler()), flags=flags
    )
    options = (*flags, *(f"-I{folder}" for folder in include))
    return _open(cache.file_or_build(f"{id}.so", lambda: toolchain.shared_object(name, text, options)))


def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # the cache may lie on a file system that forbids execution
        return ctypes.CDLL(str(cache.outside(path)))


_lock = threading.Lock()
_loaded: dict[str, HostKernel] = {}
