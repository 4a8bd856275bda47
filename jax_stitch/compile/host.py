"""Kernels for the CPU: C++ text to a loaded shared object."""

from __future__ import annotations

import ctypes
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jax_stitch import store
from jax_stitch.compile import toolchain
from jax_stitch.compile.headers import RUNTIME, headers

if TYPE_CHECKING:
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
    # GCC makes branches of a random mask (``max(0, u) < p``) where it can, and then does not vectorise its loop.
    "-fno-tree-pre",
    "-fno-thread-jumps",
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
    address: int
    library: ctypes.CDLL = field(repr=False, compare=False)


def compile_host(source: KernelSource) -> HostKernel:
    """Compiles a kernel for this machine's CPU, or finds it in the cache, and loads it.

    Raises ``CompilerMissing`` where there is no C++ compiler, ``KernelCompileError`` where it refuses the text.
    """
    options = (*FLAGS, f"-I{RUNTIME}")
    # Headers count by their content, so the folder they lie in is left out of the key.
    id = store.key(
        kind="host",
        text=source.code,
        headers=dict(headers()),
        compiler=toolchain.identity(toolchain.compiler()),
        flags=FLAGS,
        processor=toolchain.processor(),
    )
    with _lock:
        kernel = _loaded.get(id)
    if kernel is not None:
        return kernel
    content = store.read_or_build(
        "kernels", _entry(id), lambda: toolchain.shared_object(source.name, source.code, options)
    )
    return _load(source.name, id, content)


def load_host(name: str, id: str) -> HostKernel | None:
    """A kernel compiled before, by its name and id, from memory or the cache; None where it is in neither."""
    with _lock:
        kernel = _loaded.get(id)
    if kernel is not None:
        return kernel
    content = store.read("kernels", _entry(id))
    return None if content is None else _load(name, id, content)


def load_library(name: str, text: str, include: Sequence[Path], identity: str) -> ctypes.CDLL:
    """Compiles and loads a C++ text that is not a kernel (the FFI handler); ``identity`` stands for the included
    headers."""
    flags = ("-std=c++17", "-O2")
    command = toolchain.compiler()
    id = store.key(kind="library", text=text, include=identity, compiler=toolchain.identity(command), flags=flags)
    options = (*flags, *(f"-I{folder}" for folder in include))
    return _open(id, store.read_or_build("kernels", _entry(id), lambda: toolchain.shared_object(name, text, options)))


def _entry(id: str) -> str:
    return f"{id}.so"


def _load(name: str, id: str, content: bytes) -> HostKernel:
    library = _open(id, content)
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    with _lock:
        return _loaded.setdefault(id, HostKernel(name, id, address, library))


def _open(id: str, content: bytes) -> ctypes.CDLL:
    """Loads a shared object from a private copy: what was verified is what runs, whatever becomes of the cache's file.

    The copy is gone once it is loaded. Where temporary files may not be executed, it lies in the cache folder.
    """
    failures = []
    for parent in (None, store.folder()):
        try:
            with tempfile.TemporaryDirectory(prefix="jax-stitch-", dir=parent) as folder:
                path = Path(folder) / f"{id}.so"
                path.write_bytes(content)
                return ctypes.CDLL(str(path))
        except OSError as error:
            failures.append(str(error))
    raise OSError(f"no folder to load a kernel from: {'; '.join(failures)}")


_lock = threading.Lock()
_loaded: dict[str, HostKernel] = {}
