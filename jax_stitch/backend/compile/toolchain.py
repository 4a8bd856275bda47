"""The C++ compiler of this machine: finding it, telling it from others, running it."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jax_stitch.backend.compile import process
from jax_stitch.backend.compile.build_folder import build_folder
from jax_stitch.backend.compile.errors import (
    CompilerMissing,
    CompilerTimeout,
    CompilerTrouble,
    KernelCompileError,
    NoRoom,
)
from jax_stitch.util import tools

_logger = logging.getLogger(__name__)

_VERSION_SECONDS = 20.0
"""How long a compiler may take to tell its version."""
_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH")
"""What compilers take from the environment, besides their command."""
_NO_ROOM = ("No space left on device", "Disk quota exceeded", "File too large")
_NO_MEMORY = ("Killed signal", "virtual memory exhausted", "out of memory", "std::bad_alloc", "Cannot allocate memory")
_NO_LIBRARY = ("cannot find -l", "unable to find library", "library not found")
"""What linkers say of a library that is not there: not every compiler has its own where GCC's is."""
_LEAST_ROOM = 1 << 20
"""Bytes below which a folder is full, whatever a compiler says."""
_CANDIDATES = ("c++", "g++", "clang++")
_INSTALL = {
    "apt-get": "sudo apt-get install g++",
    "dnf": "sudo dnf install gcc-c++",
    "pacman": "sudo pacman -S gcc",
    "apk": "sudo apk add g++",
    "brew": "xcode-select --install",
    "conda": "conda install -c conda-forge cxx-compiler",
}


def compiler() -> tuple[str, ...]:
    """Return the command of the C++ compiler: ``$CXX`` (which may hold options), else the first found on PATH.

    Raises ``CompilerMissing`` where there is none.
    """
    text = os.environ.get("CXX", "")
    try:
        wanted = shlex.split(text)
    except ValueError as error:
        raise CompilerMissing(f"$CXX is {text!r}, which is no command ({error}). Correct or unset it.") from None
    if wanted:
        if shutil.which(wanted[0]) is None:
            raise CompilerMissing(f"$CXX is {text!r}, which is no program on PATH. Correct or unset it.")
        return tuple(wanted)
    for name in _CANDIDATES:
        if path := tools.find(name):
            return (path,)
    command = next(
        (command for tool, command in _INSTALL.items() if tools.find(tool)),
        "conda install -c conda-forge cxx-compiler",
    )
    raise CompilerMissing(
        "Stitched kernels for the CPU need a C++ compiler, and none of c++, g++, clang++ is on PATH. "
        f"Install one with `{command}`, or name one in $CXX."
    )


@functools.cache
def identity(command: tuple[str, ...]) -> str:
    """Return what tells this compiler's output from another's: its command, version and the variables that it goes by.

    Raises ``CompilerTrouble``.
    """
    if command in _hanging:
        raise CompilerTimeout(_hanging[command])
    try:
        version = process.run([*command, "--version"], most=_VERSION_SECONDS).stdout
    except CompilerTimeout as failure:  # Nobody has to wait for that twice.
        _hanging[command] = str(failure)
        raise
    return f"{shlex.join(command)} {version}{_variables()}"


def stamp() -> str:
    """Return what changes when the compiler does, without running it: its command, and its file's size and time.

    Empty where there is none.
    """
    try:
        command = compiler()
        path = Path(shutil.which(command[0]) or command[0]).resolve()
        status = path.stat()
    except (CompilerMissing, OSError):
        return ""
    return f"{shlex.join(command)} {path} {status.st_size} {status.st_mtime_ns}{_variables()}"


@functools.cache
def processor() -> str:
    """Return what ``-march=native`` depends on: the processor's model and instruction sets."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    lines = [line for line in _cpuinfo() if line.startswith(wanted)]
    # Elsewhere than on Linux ``platform`` knows; on Linux it would start a program to be told nothing.
    return "\n".join([platform.machine(), *(lines or [platform.processor()])])


def knows_processor() -> bool:
    """Return whether ``processor`` tells this one from others: else code for its own instructions would run, or fail,
    on another that shares the cache."""
    return sys.platform != "linux" or bool(_cpuinfo())


def has_avx512() -> bool:
    """Return whether the processor has vectors of 512 bits, of the x86 kind."""
    return any("avx512f" in line.split() for line in _cpuinfo())


@functools.cache
def machine() -> str:
    """Return what any machine code depends on, besides the processor: its architecture, the system, and the C
    library.
    """
    library = None
    with contextlib.suppress(ValueError, OSError):  # a C library that is not GNU's
        library = os.confstr("CS_GNU_LIBC_VERSION")
    library = library or " ".join(platform.libc_ver())  # which looks through the interpreter's file
    return f"{sys.platform} {platform.machine()} {struct.calcsize('P') * 8} bit {sys.byteorder} {library}"


DEFECT = ("internal compiler error", "unrecognizable insn")
"""What a compiler says where it is the one that is wrong: GCC 12 for extrema of 16-bit integers in AVX-512."""

WITHOUT_VECTORS = ("-fno-tree-loop-vectorize", "-fno-tree-slp-vectorize", "-fno-openmp-simd")
"""No vectors at all: ``-fno-tree-vectorize`` leaves GCC those of loops marked ``omp simd``."""


NO_DEFAULTS = "-nodefaultlibs"


def alone() -> tuple[str, ...]:
    """Return the options of what is linked without the C++ library, which would take the linker as long as all the
    rest: for what throws nothing and makes nothing, where the C library is GNU's (see ``backend/runtime/stitch.h``)."""
    is_gnu = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    return (NO_DEFAULTS, "-DST_WITHOUT_CPP_LIBRARY") if is_gnu else ()


def shared_object(name: str, text: str, options: Sequence[str], *, without_vectors: bool = True) -> bytes:
    """Return the shared object of one C++ text, ``without_vectors`` if the compiler has a defect with them.

    Raises ``KernelCompileError``, ``CompilerMissing``.
    """
    command = compiler()
    start = time.perf_counter()
    with _trouble_told(), build_folder() as folder:
        source, built = folder / "kernel.cc", folder / "kernel.so"
        source.write_text(text, encoding="utf-8")
        libraries = ("-lm", "-lc", "-lgcc") if NO_DEFAULTS in options else ("-lm",)
        compile_it = [*command, *options, "-shared", "-fPIC", str(source), "-o", str(built), *libraries]
        run = process.run(compile_it, folder)
        if run.returncode != 0 and NO_DEFAULTS in options and any(words in run.stderr for words in _NO_LIBRARY):
            compile_it = [word for word in compile_it if word not in (*alone(), "-lc", "-lgcc")]
            run = process.run(compile_it, folder)
        if run.returncode != 0 and without_vectors and any(words in run.stderr for words in DEFECT):
            _logger.debug("%s: %s fails on it, vectors are left out", name, command[0])
            run = process.run([*compile_it, *WITHOUT_VECTORS], folder)
        if run.returncode != 0:
            _check_room(folder, command[0], run)
            raise KernelCompileError(name, shlex.join(command), run.stderr or f"exit status {run.returncode}", text)
        if not built.exists():
            raise CompilerTrouble(f"{command[0]} said all is well and wrote no file. Name another compiler in $CXX.")
        _logger.debug("%s: compiled by %s in %.2f s", name, command[0], time.perf_counter() - start)
        return built.read_bytes()


@contextlib.contextmanager
def _trouble_told() -> Iterator[None]:
    """Tell a file system that fails from a defect of ours. Where there is no room, or no permission, the reason is
    known already."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES):
            raise
        raise CompilerTrouble(
            f"Files could not be written or read where kernels are compiled ({error}). Set TMPDIR to another folder."
        ) from error


def _check_room(folder: Path, command: str, run: subprocess.CompletedProcess[str]) -> None:
    """Raise what is to blame where a compiler fails and the kernel is not."""
    if any(words in run.stderr for words in _NO_ROOM) or _is_full(folder):
        raise NoRoom(errno.ENOSPC, f"no space is left where kernels are compiled, in {folder.parent}")
    # A shell gives the number of a signal that ended its command as 128 more.
    signals = {-run.returncode, run.returncode - 128} & {signal.SIGKILL, signal.SIGTERM}
    if signals or any(words in run.stderr for words in _NO_MEMORY):
        raise CompilerTrouble(f"{command} was killed or ran out of memory. Give it more, or close other programs.")


def _is_full(folder: Path) -> bool:
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < _LEAST_ROOM or (space.f_files > 0 and space.f_favail == 0)


def _variables() -> str:
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return f" {variables}" if variables else ""


def _cpuinfo() -> list[str]:
    """Return what Linux tells of the first processor; nothing elsewhere."""
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return []


_hanging: dict[tuple[str, ...], str] = {}
"""Compilers that came to no end, with what was said of them."""
