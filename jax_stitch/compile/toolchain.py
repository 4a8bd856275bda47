"""The C++ compiler of this machine: finding it, telling it from others, running it."""

from __future__ import annotations

import functools
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from jax_stitch.compile import effort
from jax_stitch.compile.errors import CompilerMissing, KernelCompileError

_logger = logging.getLogger(__name__)

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
    """The command of the C++ compiler: ``$CXX`` (which may hold options), else the first found on PATH.

    Raises ``CompilerMissing`` where there is none.
    """
    wanted = shlex.split(os.environ.get("CXX", ""))
    if wanted:
        if shutil.which(wanted[0]) is None:
            raise CompilerMissing(f"$CXX is {os.environ['CXX']!r}, which is no program on PATH. Correct or unset it.")
        return tuple(wanted)
    for name in _CANDIDATES:
        if found := shutil.which(name):
            return (found,)
    command = next(
        (command for tool, command in _INSTALL.items() if shutil.which(tool)),
        "conda install -c conda-forge cxx-compiler",
    )
    raise CompilerMissing(
        "Stitched kernels for the CPU need a C++ compiler, and none of c++, g++, clang++ is on PATH. "
        f"Install one with `{command}`, or name one in $CXX."
    )


@functools.cache
def identity(command: tuple[str, ...]) -> str:
    """What tells this compiler's output from another's: its command and version."""
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    return f"{shlex.join(command)} {version}"


def stamp() -> str:
    """What changes when the compiler does, without running it: its command, and its file's size and time.

    Empty where there is none.
    """
    try:
        command = compiler()
    except CompilerMissing:
        return ""
    path = Path(shutil.which(command[0]) or command[0]).resolve()
    status = path.stat()
    return f"{shlex.join(command)} {path} {status.st_size} {status.st_mtime_ns}"


@functools.cache
def processor() -> str:
    """What ``-march=native`` depends on: the processor's model and instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    return "\n".join([platform.machine(), platform.processor(), *(line for line in lines if line.startswith(wanted))])


DEFECT = ("internal compiler error", "unrecognizable insn")
"""What a compiler says where it is the one that is wrong: GCC 12 for extrema of 16-bit integers in AVX-512."""

WITHOUT_VECTORS = ("-fno-tree-loop-vectorize", "-fno-tree-slp-vectorize", "-fno-openmp-simd")
"""No vectors at all: ``-fno-tree-vectorize`` leaves GCC those of loops marked ``omp simd``."""


def shared_object(name: str, text: str, options: Sequence[str]) -> bytes:
    """The shared object of one C++ text. Raises ``KernelCompileError``, ``CompilerMissing``."""
    command = compiler()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="jax-stitch-build-") as folder:
        source, built = Path(folder) / "kernel.cc", Path(folder) / "kernel.so"
        source.write_text(text, encoding="utf-8")
        compile_it = [*command, *options, "-shared", "-fPIC", str(source), "-o", str(built), "-lm"]
        run = effort.run(compile_it)
        if run.returncode != 0 and any(words in run.stderr for words in DEFECT):
            _logger.debug("%s: %s fails on it, vectors are left out", name, command[0])
            run = effort.run([*compile_it, *WITHOUT_VECTORS])
        if run.returncode != 0:
            raise KernelCompileError(name, shlex.join(command), run.stderr or f"exit status {run.returncode}", text)
        if not built.exists():
            raise KernelCompileError(name, shlex.join(command), "it reported success and wrote no file", text)
        _logger.debug("%s: compiled by %s in %.2f s", name, command[0], time.perf_counter() - start)
        return built.read_bytes()
