"""The checker's machine: a kernel's text compiled with a call before every access, and the structures it is told by."""

from __future__ import annotations

import ctypes
import functools
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jax_stitch.backend.compile import KernelCompileError, toolchain
from jax_stitch.backend.compile.build_folder import build_folder
from jax_stitch.backend.compile.headers import RUNTIME, headers
from jax_stitch.backend.compile.load import load
from jax_stitch.backend.compile.process import run
from jax_stitch.emit.cpp.scalar import STORAGE
from jax_stitch.util import store

if TYPE_CHECKING:
    from jax_stitch.emit import KernelSource

CHECKED = RUNTIME / "checked"
_MACHINE_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fno-exceptions", "-fno-omit-frame-pointer", "-U_FORTIFY_SOURCE")
_KERNEL_FLAGS = (
    *("-std=c++17", "-g", "-fPIC", "-fno-exceptions", "-ffp-contract=off", "-w"),
    # Nothing may be moved or joined, so that what is counted is what the text says; and code lies as it is written.
    *("-O0", "-fno-omit-frame-pointer"),
    *("-fsanitize=thread", "-fsanitize-coverage=trace-pc"),
)


class CFinding(ctypes.Structure):
    """``checked::Finding``."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "buffer")),
        *((name, ctypes.c_int64) for name in ("offset", "block", "other_block")),
        *((name, ctypes.c_int32) for name in ("thread", "other_thread", "bytes", "writes")),
        *((name, ctypes.c_uint64) for name in ("place", "count")),
    )


class CTraffic(ctypes.Structure):
    """``checked::Traffic``."""

    _fields_ = (
        *(
            (name, ctypes.c_uint64)
            for name in (
                *("read_by_warps", "written_by_warps", "read_by_blocks", "written_by_blocks", "read", "written"),
                *("bytes_read", "bytes_written", "accesses"),
            )
        ),
        ("again", ctypes.c_uint64 * 32),
    )


class CBuffer(ctypes.Structure):
    """``checked::Buffer``."""

    _fields_ = (
        ("content", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("writable", ctypes.c_int32),
        ("initialised", ctypes.c_int32),
        ("over", ctypes.c_int32),
        ("traffic", CTraffic),
    )


class CLaunch(ctypes.Structure):
    """``checked::Launch``."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("buffers", ctypes.POINTER(CBuffer)),
        ("buffer_count", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("grid", ctypes.c_int64),
        ("shared_bytes", ctypes.c_int64),
        ("blocks", ctypes.POINTER(ctypes.c_int64)),
        ("block_count", ctypes.c_int64),
        ("static_shared", ctypes.c_void_p),
        ("static_shared_bytes", ctypes.c_int64),
        ("arrivals", ctypes.c_void_p),
        ("arrivals_bytes", ctypes.c_int64),
        ("cluster", ctypes.c_int64),
    )


class CReport(ctypes.Structure):
    """``checked::Report``."""

    _fields_ = (
        ("findings", ctypes.POINTER(CFinding)),
        ("most_findings", ctypes.c_int32),
        ("finding_count", ctypes.c_int32),
        ("shared_wavefronts", ctypes.c_uint64),
        ("least_shared_wavefronts", ctypes.c_uint64),
        ("stopped", ctypes.c_int32),
        ("padding", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """A kernel compiled for the checker, in this process's memory."""

    library: ctypes.CDLL
    content: bytes = field(repr=False)
    """The shared object, which tells the line of each place."""

    def launch(self, launch: CLaunch, report: CReport) -> None:
        """Run it; ``launch`` needs no more than its buffers, dimensions and blocks."""
        library, size = self.library, ctypes.c_int64()
        launch.kernel = ctypes.cast(library.st_check_kernel, ctypes.c_void_p)
        library.st_check_static_shared.restype = ctypes.c_void_p
        launch.static_shared = library.st_check_static_shared(ctypes.byref(size))
        launch.static_shared_bytes = size.value
        library.st_check_arrivals.restype = ctypes.c_void_p
        launch.arrivals = library.st_check_arrivals(ctypes.byref(size))
        launch.arrivals_bytes = size.value
        library.st_check_run(ctypes.byref(launch), ctypes.byref(report))


def compile_checked(source: KernelSource) -> CheckedKernel:
    """Compile a kernel's CUDA side for the checker, or finds it in the cache, and loads it.

    Raises ``CompilerMissing`` where there is no C++ compiler, ``KernelCompileError`` where it refuses the text.
    """
    # Numbered apart from the text, so that lines are those of the source.
    text = f"{source.text}\n{_entry(source)}"
    key = store.key(
        kind="checked",
        text=text,
        headers=dict(headers()) | {path.name: path.read_text() for path in sorted(CHECKED.iterdir())},
        compiler=toolchain.identity(toolchain.compiler()),
        flags=(*_KERNEL_FLAGS, *_MACHINE_FLAGS),
    )
    return _load(key, store.read_or_build("kernels", f"{key}.checked.so", lambda: _build(source.name, text)))


def _entry(source: KernelSource) -> str:
    """Return the function that calls the kernel on an array of pointers, and shows the checker where blocks meet."""
    written = (*source.outputs, *source.scratch)
    types = [f"const {STORAGE[t.dtype]}*" for t in source.inputs] + [f"{STORAGE[t.dtype]}*" for t in written]
    arguments = ", ".join(f"static_cast<{t}>(buffers[{k}])" for k, t in enumerate(types))
    arguments += ", st_arrivals" * bool(source.phases)
    return f"""
static unsigned long long st_arrivals[1];
extern "C" __attribute__((no_sanitize("thread"))) void st_check_kernel(void** buffers) {{ {source.name}({arguments}); }}
extern "C" void* st_check_arrivals(int64_t* bytes) {{
  *bytes = sizeof(st_arrivals);
  return st_arrivals;
}}
"""


def _build(name: str, text: str) -> bytes:
    command = toolchain.compiler()
    with build_folder() as folder:
        source, machine = folder / "kernel.cc", folder / "checker.o"
        kernel, built = folder / "kernel.o", folder / "kernel.so"
        source.write_text(text, encoding="utf-8")
        machine.write_bytes(_machine())
        include = (f"-I{RUNTIME}", f"-I{CHECKED}", "-include", "cuda.h")
        _run(name, [*command, *_KERNEL_FLAGS, *include, "-c", str(source), "-o", str(kernel)], text)
        # Without the sanitiser's option, which would link its library.
        linked = [*command, "-shared", "-Wl,-Bsymbolic", str(kernel), str(machine), "-o", str(built), "-lm"]
        _run(name, linked, text)
        return built.read_bytes()


@functools.cache
def _machine() -> bytes:
    """Return the checker as an object file."""
    command, text = toolchain.compiler(), (CHECKED / "checker.cc").read_text()
    with build_folder() as folder:
        built = folder / "checker.o"
        _run("checker", [*command, *_MACHINE_FLAGS, "-c", str(CHECKED / "checker.cc"), "-o", str(built)], text)
        return built.read_bytes()


def _run(name: str, command: list[str], text: str) -> None:
    done = run(command)
    if done.returncode != 0:
        raise KernelCompileError(name, shlex.join(command[:1]), done.stderr or f"exit status {done.returncode}", text)


@functools.lru_cache(maxsize=256)
def _load(key: str, content: bytes) -> CheckedKernel:
    return CheckedKernel(load(content), content)
