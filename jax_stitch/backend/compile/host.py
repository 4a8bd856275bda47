"""Compilation of kernels for the CPU: C++ text to a loaded shared object."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from jax_stitch.backend.compile import given_up, toolchain
from jax_stitch.backend.compile.errors import CompilerTrouble
from jax_stitch.backend.compile.headers import RUNTIME, headers
from jax_stitch.backend.compile.load import load
from jax_stitch.util import store

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource

_T = TypeVar("_T")

_IN = b"in "
"""The prefix of the cache entry of a kernel that was compiled in a batch; the key of the batch's entry follows."""

_NATIVE = "-march=native"
FLAGS = (
    "-std=c++17",
    "-O3",
    _NATIVE,
    "-fopenmp-simd",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    # GCC turns a random mask (``max(0, u) < p``) into branches where it can, and then does not vectorise its loop.
    "-fno-tree-pre",
    "-fno-thread-jumps",
    # Both passes take a third of the compile time of long kernels, and kernels are as fast without them.
    "-fno-gcse",
    "-fno-gcse-after-reload",
    # How far GCC searches for the writes that may alias a read. The limit saves up to a fifth of the compile time of
    # kernels with many loops, which are as fast.
    "--param=sccvn-max-alias-queries-per-access=50",
    *toolchain.alone(),
)
_OWN_INDICES = "-fno-tree-vrp"
"""Without it, GCC 12 miscompiles the index ``row < 1 ? row : 1`` in a vectorised loop, which reads out of bounds. Only
for kernels that compute indices: others run up to a tenth longer with it."""
_OWN_CALLS = "-fno-tree-sink"
"""Without it, GCC turns selects of a function's results into branches, and then does not vectorise their loop. Only for
kernels of doubles: others call no functions."""
_OWN_COPIES = "-fno-tree-loop-distribute-patterns"
"""Without it, GCC calls the C library for copies of 40 bytes in loops of few instructions, which take half as long
again. Only for kernels with loops: elsewhere copies are long, and the C library's are faster."""
_WIDE = "-mprefer-vector-width=512"
"""GCC and Clang prefer half of AVX-512's width where they tune for Intel's processors, which once lowered their clock
for the full width. With half, functions of rows take a fifth longer; loops that read neighbours of what they have just
written take less."""

LIBRARY_FLAGS = ("-std=c++17", "-O2")
"""Flags for libraries that are not kernels: they run on every processor of the architecture."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class HostKernel:
    """A kernel in this process's memory.

    ``address`` is that of its function, ``void(void** buffers, int64_t first_block, int64_t last_block)``, valid
    while this object lives.
    """

    name: str
    id: str
    """A hash of all that determines the kernel: equal in all processes, unlike the address."""
    address: int
    library: ctypes.CDLL = field(repr=False, compare=False)


def compile_host(source: KernelSource) -> HostKernel:
    """Compile a kernel for this machine's CPU, or find it in the cache, and load it.

    Raise ``CompilerMissing`` where there is no C++ compiler, ``KernelCompileError`` where it rejects the text,
    ``CompilerTrouble`` where it cannot work.
    """
    id = id_of(source)
    with _lock:
        kernel = _loaded.get(id)
    if kernel is not None:
        return kernel
    return _cached_or_built(
        id,
        lambda content: _loaded_kernel(source.name, id, content),
        lambda: given_up.compiled(id, lambda: toolchain.shared_object(source.name, source.code, _options(source))),
    )


def compile_batch(sources: Sequence[KernelSource]) -> tuple[HostKernel, ...]:
    """Compile several kernels in one run of the compiler, whose start takes as long as a small kernel, and load them.
    Their names have to be distinct, and their ``flags_of`` equal.

    Raise the errors of ``compile_host``, for all of them.
    """
    parts = [_includes_and_rest(s.code) for s in sources]
    includes = "".join(dict.fromkeys(includes for includes, _ in parts))
    text = includes + "".join(f"namespace kernel_{k} {{\n{rest}\n}}\n" for k, (_, rest) in enumerate(parts))
    ids = [id_of(s) for s in sources]
    batch = store.key(kind="batch", ids=ids)
    name = f"{sources[0].name} and {len(sources) - 1} more"
    content = toolchain.shared_object(name, text, _options(sources[0]), without_vectors=False)
    with _loading():
        first = _kernel_of(sources[0].name, ids[0], load(content))
        others = list(zip(sources[1:], ids[1:], strict=True))
        libraries = (_opened_again(first.library) or load(content) for _ in others)
        kernels = (first, *(_kernel_of(s.name, id, lib) for (s, id), lib in zip(others, libraries, strict=True)))
    with _lock:
        _of_batch[batch] = first
    store.write("kernels", _entry(batch), content)
    for id in ids:
        store.write("kernels", _entry(id), _IN + batch.encode())
    return kernels


def _includes_and_rest(code: str) -> tuple[str, str]:
    """Return the first lines of a text, which include headers, and the others."""
    lines = code.splitlines(keepends=True)
    count = len(list(itertools.takewhile(lambda line: line.startswith("#include"), lines)))
    return "".join(lines[:count]), "".join(lines[count:])


def is_kept(source: KernelSource) -> bool:
    """Return whether a kernel was compiled before, so that it has only to be loaded."""
    id = id_of(source)
    with _lock:
        is_loaded = id in _loaded
    return is_loaded or store.read("kernels", _entry(id)) is not None


def is_slow(source: KernelSource) -> bool:
    """Return whether the compiler timed out on a kernel before, so that other kernels must not wait for it."""
    return given_up.is_marked(id_of(source))


def id_of(source: KernelSource) -> str:
    """Return a hash of all that determines a kernel. Headers count by their content, not by their folder."""
    return store.key(
        kind="host",
        text=source.code,
        headers=dict(headers()),
        compiler=toolchain.identity(toolchain.compiler()),
        flags=flags_of(source),
        processor=toolchain.processor(),
        machine=toolchain.machine(),
    )


def _options(source: KernelSource) -> tuple[str, ...]:
    return (*flags_of(source), f"-I{RUNTIME}")


def flags_of(source: KernelSource) -> tuple[str, ...]:
    """Return the compiler's flags for a kernel, without include folders."""
    known = toolchain.knows_processor()
    wide = (_WIDE,) if known and source.has_wide_vectors and toolchain.has_avx512() else ()
    indices = (_OWN_INDICES,) if source.computes_indices else ()
    calls = (_OWN_CALLS,) if source.has_doubles else ()
    copies = (_OWN_COPIES,) if source.has_steps else ()
    return (*(flag for flag in FLAGS if known or flag != _NATIVE), *indices, *calls, *copies, *wide)


def load_host(name: str, id: str) -> HostKernel | None:
    """Return a kernel compiled before, by its name and id, from memory or the cache; None where it is in neither."""
    with _lock:
        kernel = _loaded.get(id)
    if kernel is not None:
        return kernel
    return _cached(id, lambda content: _loaded_kernel(name, id, content))


def load_library(name: str, text: str, include: Sequence[Path], identity: str) -> ctypes.CDLL:
    """Compile and load a C++ text that is not a kernel (the FFI handler). ``identity`` identifies the included headers
    in the cache's key."""
    options = (*LIBRARY_FLAGS, *(f"-I{folder}" for folder in include))
    return _cached_or_built(_library_id(text, identity), load, lambda: toolchain.shared_object(name, text, options))


def kept_library(text: str, identity: str) -> ctypes.CDLL | None:
    """Return the library that ``load_library`` compiled from a text before; None where there is none."""
    return _cached(_library_id(text, identity), load)


def _library_id(text: str, identity: str) -> str:
    return store.key(
        kind="library",
        text=text,
        include=identity,
        compiler=toolchain.identity(toolchain.compiler()),
        flags=LIBRARY_FLAGS,
        processor=toolchain.processor(),  # $CXX may contain options such as -march=native.
        machine=toolchain.machine(),
    )


@functools.cache
def stand_in(name: str) -> HostKernel:
    """Return a kernel of that name that does nothing, for programs that are compiled for inspection and never run."""
    text = 'extern "C" void stitch_nothing(void**, long long, long long) {}'
    library = load_library("kernel that does nothing", text, [], "")
    address = ctypes.cast(library.stitch_nothing, ctypes.c_void_p).value
    assert address is not None
    return HostKernel(name, f"{name}, never run", address, library)


def _entry(id: str) -> str:
    return f"{id}.so"


def _cached_or_built(id: str, use: Callable[[bytes], _T | None], build: Callable[[], bytes]) -> _T:
    """Return ``use`` of a cache entry, or of a newly built one where it is missing or unusable. Only usable content is
    cached: one failure of a compiler must not break all later processes."""
    kept = _cached(id, use)
    if kept is not None:
        return kept
    content = build()
    with _loading():
        made = use(content)
    assert made is not None
    store.write("kernels", _entry(id), content)
    return made


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    """Translate errors while new output of the compiler is loaded into ``CompilerTrouble``."""
    try:
        yield
    except (OSError, AttributeError) as error:
        command = " ".join(toolchain.compiler())
        raise CompilerTrouble(
            f"What {command} made cannot be loaded: {error}. Name another compiler in $CXX, or call the function in a "
            "new process if this was an accident: nothing of it is kept."
        ) from error


def _cached(id: str, use: Callable[[bytes], _T | None]) -> _T | None:
    """Return ``use`` of a cache entry; None where it is missing or cannot be loaded."""
    content = store.read("kernels", _entry(id))
    if content is None:
        return None
    try:
        return use(content)
    except (OSError, AttributeError):  # From another machine, or broken by its compiler.
        store.set_aside("kernels", _entry(id))
        return None


def _loaded_kernel(name: str, id: str, content: bytes) -> HostKernel | None:
    """Return the kernel of a cache entry; None where it was compiled in a batch whose entry is gone. Raise ``OSError``
    where the content is no shared object, ``AttributeError`` where it has no such kernel."""
    if not content.startswith(_IN):
        return _kernel_of(name, id, load(content))
    batch = content.removeprefix(_IN).decode()
    with _lock:
        beside = _of_batch.get(batch)
    library = None if beside is None else _opened_again(beside.library)
    library = library or _cached(batch, load)
    if library is None:
        return None
    kernel = _kernel_of(name, id, library)
    with _lock:
        _of_batch.setdefault(batch, kernel)
    return kernel


def _opened_again(library: ctypes.CDLL) -> ctypes.CDLL | None:
    """Open a batch's shared object again for another of its kernels: each kernel closes its own handle at its end. It
    is found by name, without its file, which may be another by then: only while one of its kernels is loaded. Return
    None where the system does not find it."""
    try:
        again = ctypes.CDLL(library._name, mode=os.RTLD_NOLOAD)
    except OSError:
        return None
    return again if again._handle == library._handle else None


def _kernel_of(name: str, id: str, library: ctypes.CDLL) -> HostKernel:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    with _lock:
        return _loaded.setdefault(id, HostKernel(name, id, address, library))


_lock = threading.Lock()
_loaded: weakref.WeakValueDictionary[str, HostKernel] = weakref.WeakValueDictionary()
_of_batch: weakref.WeakValueDictionary[str, HostKernel] = weakref.WeakValueDictionary()
"""A kernel of each shared object that holds several, by the name of its entry."""
