"""Kernels for NVIDIA GPUs: C++ text to PTX and machine code, with no GPU or driver present."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jax_stitch.backend.compile import given_up
from jax_stitch.backend.compile.errors import KernelCompileError
from jax_stitch.backend.compile.headers import headers
from jax_stitch.backend.compile.nvrtc import Refused, require
from jax_stitch.backend.compile.process import within_deadline
from jax_stitch.util import store

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource

_ISA = {
    75: (6, 3),
    80: (7, 0),
    86: (7, 1),
    87: (7, 4),
    89: (7, 8),
    90: (7, 8),
    100: (8, 6),
    101: (8, 6),
    103: (8, 8),
    110: (9, 0),
    120: (8, 7),
    121: (8, 8),
}
"""The first PTX version that knows each architecture."""
_ISA_FLOOR = (8, 0)
"""That of CUDA 12.0, the oldest driver JAX runs on: what it has (clusters, bulk copies) need not be looked for in
the text."""
_ISA_LARGE_PARAMETERS = (8, 1)
_CUDA_LARGE_PARAMETERS = (12, 1)
_SMALL_PARAMETERS = 4096
"""Bytes of kernel parameters that every PTX version takes."""
_logger = logging.getLogger(__name__)

_VERSION = re.compile(r"^\.version (\d+)\.(\d+)", re.MULTILINE)
_USED_BYTES = re.compile(r'^\s*\.pragma "used_bytes_mask [^"]*";\n', re.MULTILINE)
"""Which bytes of a load are used: said for tools alone, and refused by what knows no PTX 8.3."""
_ISA_USED_BYTES = (8, 3)


@dataclass(frozen=True, slots=True)
class PtxKernel:
    """A kernel for one GPU architecture. ``ptx`` names the lowest PTX version that will do, so that drivers older
    than the compiler take it."""

    name: str
    id: str
    """A hash of all that determines the kernel."""
    sm: str
    """The architecture, as in "sm_90"."""
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    registers: int
    """Per thread."""
    shared_bytes: int
    """Static shared memory per block."""
    stack_bytes: int
    """Local memory per thread: arrays indexed at run time, and spilled registers."""
    spill_bytes: int
    """Bytes of spill stores and loads per thread, counted in the code."""


def compile_ptx(source: KernelSource, device_sm: str = "sm_90") -> PtxKernel:
    """Compile a kernel for a GPU architecture ("sm_75", "sm_80", "sm_90", ...), or finds it in the cache.

    Raises ``NvrtcMissing`` where NVRTC is missing or does not know the architecture, ``KernelCompileError`` where it
    refuses the text.
    """
    if not re.fullmatch(r"sm_\d+", device_sm):
        raise ValueError(f"An architecture is written like sm_90, not {device_sm!r}")
    capability = int(device_sm.removeprefix("sm_"))
    compiler = require(capability)
    parameters = 8 * (len(source.inputs) + len(source.outputs) + len(source.scratch) + bool(source.phases))
    if parameters > (most := most_parameter_bytes(compiler.version)):
        reason = f"its {parameters} bytes of parameters are more than the {most} that it takes; CUDA 12.1 takes 32,764"
        raise KernelCompileError(source.name, str(compiler), reason, source.code)
    options = (f"--gpu-architecture={device_sm}", "--std=c++17", "--ptxas-options=-v")
    id = store.key(
        kind="ptx",
        text=source.code,
        headers=dict(headers()),
        compiler=compiler.version,
        options=options,
        buffers=len(source.inputs) + len(source.outputs),
    )

    def build() -> bytes:
        start = time.perf_counter()
        try:
            made = within_deadline(str(compiler), lambda: compiler.compile(source.code, headers(), options))
        except Refused as refusal:
            raise KernelCompileError(source.name, str(compiler), str(refusal), source.code) from None
        _logger.debug("%s: compiled by %s in %.2f s", source.name, compiler, time.perf_counter() - start)
        ptx = _lower_version(made.ptx, capability, parameters)
        return json.dumps({"ptx": ptx, "cubin": base64.b85encode(made.cubin).decode(), **_resources(made.log)}).encode()

    content = store.read_or_build("kernels", f"{id}.ptx.json", lambda: given_up.compiled(id, build))
    entry = json.loads(content)
    cubin = base64.b85decode(entry.pop("cubin"))
    return PtxKernel(name=source.name, id=id, sm=device_sm, cubin=cubin, **entry)


def most_parameter_bytes(version: tuple[int, int]) -> int:
    """Return the most parameter bytes of a kernel, by NVRTC of this version."""
    return 32764 if version >= _CUDA_LARGE_PARAMETERS else _SMALL_PARAMETERS


def _lower_version(ptx: str, capability: int, parameter_bytes: int) -> str:
    """Return the text marked with the lowest PTX version that its architecture and its parameters need."""
    needed = max(_ISA_FLOOR, _ISA.get(capability, (0, 0)))
    if parameter_bytes > _SMALL_PARAMETERS:
        needed = max(needed, _ISA_LARGE_PARAMETERS)
    version = _VERSION.search(ptx)
    if capability not in _ISA or version is None or (int(version[1]), int(version[2])) <= needed:
        return ptx
    if needed < _ISA_USED_BYTES:
        ptx = _USED_BYTES.sub("", ptx)
    return f"{ptx[: version.start()]}.version {needed[0]}.{needed[1]}{ptx[version.end() :]}"


def _resources(log: str) -> dict[str, int]:
    """Return the resources used, from the assembler's verbose log (one entry function; device functions are
    inlined).
    """

    def total(pattern: str) -> int:
        return sum(int(n) for n in re.findall(pattern, log))

    return {
        "registers": max((int(n) for n in re.findall(r"Used (\d+) registers", log)), default=0),
        "shared_bytes": total(r"(\d+) bytes smem"),
        "stack_bytes": total(r"(\d+) bytes stack frame"),
        "spill_bytes": total(r"(\d+) bytes spill (?:stores|loads)"),
    }
