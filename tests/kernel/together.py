"""The kernels of many programs compiled as one C++ text, for speed: what they compute, not how fast, is asked."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from jax_stitch.backend.compile import Kernel, host, toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.host import HostKernel
from jax_stitch.backend.compile.load import load
from jax_stitch.pipeline import Stitched

FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in host.FLAGS)
HEADER = '#include "stitch.h"'


def compiled(programs: Sequence[Stitched]) -> list[tuple[Kernel, ...]]:
    """The kernels of each program; the compiler is called once."""
    texts, names = [HEADER], {}
    for number, made in enumerate(programs):
        for k, source in enumerate(made.sources):
            name = f"drawn_{number}_{k}"
            names[number, k] = name
            text = source.code.replace(HEADER, "").replace(f" {source.name}(", f" {name}(")
            texts.append(f"namespace of_{name} {{\n{text}\n}}")
    if not names:
        return [() for _ in programs]
    content = toolchain.shared_object("drawn", "\n".join(texts), (*FLAGS, f"-I{RUNTIME}"))
    library = load(content)

    def kernel(number: int, k: int) -> HostKernel:
        name = names[number, k]
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        assert address is not None
        return HostKernel(name, f"{name} of {id(library)}", address, library)

    return [tuple(kernel(number, k) for k in range(len(made.sources))) for number, made in enumerate(programs)]


def run(made: Stitched, kernels: Sequence[Kernel], args: Sequence[Any]) -> list[Any]:
    """The results of a program whose kernels are compiled."""
    return list(made.function(kernels)(args))
