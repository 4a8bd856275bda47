"""NVIDIA's runtime compiler through ctypes: no driver, no GPU, no other Python package needed, any version from
12.0."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from jax_stitch.backend.compile.errors import NvrtcMissing

_INSTALL = (
    "Install it with `pip install nvidia-cuda-nvrtc` (CUDA 13) or `pip install nvidia-cuda-nvrtc-cu12` (CUDA 12)."
)


class Compiled(Struct, frozen=True):
    """What one compilation made."""

    ptx: str
    cubin: bytes
    log: str


class Refused(Exception):
    """The compiler did not take the text; the argument is its log."""


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """A loaded NVRTC."""

    path: Path
    version: tuple[int, int]
    library: ctypes.CDLL = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"NVRTC {self.version[0]}.{self.version[1]}"

    def architectures(self) -> frozenset[int]:
        """Return the compute capabilities it can compile for, as in sm_90."""
        count = ctypes.c_int()
        self._check(self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        capabilities = (ctypes.c_int * count.value)()
        self._check(self.library.nvrtcGetSupportedArchs(capabilities))
        return frozenset(capabilities)

    def compile(self, text: str, headers: Mapping[str, str], options: Sequence[str]) -> Compiled:
        """Compile one text, with its headers by include name. Raises ``Refused`` with the log where it has errors."""
        program = ctypes.c_void_p()
        names, texts = [name.encode() for name in headers], [header.encode() for header in headers.values()]
        strings = ctypes.c_char_p * len(names)
        self._check(
            self.library.nvrtcCreateProgram(
                ctypes.byref(program), text.encode(), b"kernel.cu", len(names), strings(*texts), strings(*names)
            )
        )
        try:
            arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            code = self.library.nvrtcCompileProgram(program, len(options), arguments)
            log = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if code != 0:
                raise Refused(log.strip() or self._message(code))
            return Compiled(self._read(program, "PTX").rstrip(b"\0").decode(), self._read(program, "CUBIN"), log)
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self.library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, code: int) -> None:
        if code != 0:
            raise RuntimeError(f"{self} ({self.path}): {self._message(code)}")

    def _message(self, code: int) -> str:
        describe: Callable[[int], bytes] = self.library.nvrtcGetErrorString
        return describe(code).decode()


@functools.cache
def nvrtc() -> Nvrtc:
    """Return the newest NVRTC that can be loaded. Raises ``NvrtcMissing`` where there is none."""
    failures = []
    for path in _candidates():
        try:
            return _load(path)
        except OSError as error:
            failures.append(f"{path}: {error}")
    tried = "".join(f"\n  {failure}" for failure in failures)
    raise NvrtcMissing(
        f"Compiling kernels for a GPU needs NVIDIA's NVRTC, and no libnvrtc could be loaded.{tried}\n{_INSTALL}"
    )


def stamp() -> str:
    """Return what changes when NVRTC does, without loading it: its file's path, size and time. Empty if there is
    none.
    """
    path = next(_candidates(), None)
    if path is None or not path.exists():
        return str(path or "")
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def require(compute_capability: int) -> Nvrtc:
    """Return NVRTC, and make sure that it knows an architecture (90 for sm_90). Raise ``NvrtcMissing``."""
    library = nvrtc()
    if compute_capability not in library.architectures():
        known = ", ".join(f"sm_{n}" for n in sorted(library.architectures()))
        raise NvrtcMissing(
            f"{library} ({library.path}) cannot compile for sm_{compute_capability}, only for {known}. "
            f"Another release can: newer for a newer GPU, CUDA 12 for sm_50 to sm_72. {_INSTALL}"
        )
    return library


def _load(path: Path) -> Nvrtc:
    # NVRTC opens its builtins by bare name: with them loaded, it finds them wherever they lie.
    for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):
        ctypes.CDLL(str(builtins))
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    major, minor = ctypes.c_int(), ctypes.c_int()
    if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) != 0:
        raise OSError("nvrtcVersion failed")
    return Nvrtc(path, (major.value, minor.value), library)


def _candidates() -> Iterator[Path]:
    """Yield where NVRTC may lie: the pip packages first (newest first), then CUDA toolkits, then the system's own
    search."""
    for folders in (_package_folders(), _toolkit_folders()):
        paths = {path.resolve(): None for folder in folders for path in folder.glob("libnvrtc.so*")}
        yield from sorted(paths, key=_version_in_name, reverse=True)
    if name := ctypes.util.find_library("nvrtc"):
        yield Path(name)


def _package_folders() -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        yield from Path(root).glob("cu*/lib")
        yield from Path(root).glob("cuda_nvrtc/lib")


def _toolkit_folders() -> Iterator[Path]:
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if root:
            yield Path(root) / "lib64"


def _version_in_name(path: Path) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", path.name.partition(".so")[2]))
