"""What makes most programs cheap: XLA compiles a text once, and without optimising; kernels are compiled together.

None of it decides what is wrong. Where a program's results are not as good as equal under it, the program is run again
without.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from jax._src import compiler

from jax_stitch import pipeline, store
from jax_stitch.compile import Kernel, KernelCompileError, host, toolchain
from jax_stitch.compile.load import load
from jax_stitch.emit import KernelSource

INCLUDE = '#include "stitch.h"\n'
LEVEL = ("xla_backend_optimization_level", 0)


@contextmanager
def cheap() -> Iterator[None]:
    """XLA's executables are kept by the text that they are made of, and not optimised."""
    with ExitStack() as stack:
        kept: dict[tuple[str, str], Any] = {}
        usual = compiler.backend_compile_and_load

        def compiled(backend: Any, module: Any, devices: Any, options: Any, callbacks: Sequence[Any]) -> Any:
            others = [o for o in options.env_option_overrides if o[0] != LEVEL[0]]
            options.env_option_overrides = [*others, LEVEL]
            if callbacks:
                return usual(backend, module, devices, options, callbacks)
            key = (str(module), str(others))
            if key not in kept:
                kept[key] = usual(backend, module, devices, options, callbacks)
            return kept[key]

        stack.enter_context(mock.patch.object(compiler, "backend_compile_and_load", compiled))
        yield


@contextmanager
def kernels_together() -> Iterator[None]:
    """A program's kernels are one text for the C++ compiler: each as it is, in a namespace of its own."""
    usual = pipeline.compile_all

    def compile_all(
        sources: Sequence[KernelSource], target: str, progress: Callable[[int, int], None] | None = None
    ) -> tuple[Kernel, ...]:
        names = {s.name for s in sources}
        if target != "host" or not 1 < len(names) == len(sources):
            return usual(sources, target, progress)
        try:
            return together(sources)
        except KernelCompileError:  # Which of them it is shows alone.
            return usual(sources, target, progress)

    with mock.patch.object(pipeline, "compile_all", compile_all):
        yield


def together(sources: Sequence[KernelSource]) -> tuple[host.HostKernel, ...]:
    bodies = [f"namespace kernel_{k} {{\n{s.code.removeprefix(INCLUDE)}\n}}\n" for k, s in enumerate(sources)]
    assert all(s.code.startswith(INCLUDE) for s in sources)
    text = INCLUDE + "".join(bodies)
    flags = host._flags(any(s.has_wide_vectors for s in sources))
    library = load(toolchain.shared_object("kernels", text, (*flags, f"-I{host.RUNTIME}")))
    made = []
    for s in sources:
        address = ctypes.cast(getattr(library, s.name), ctypes.c_void_p).value
        assert address is not None
        made.append(host.HostKernel(s.name, store.key(kind="together", text=text, name=s.name), address, library))
    return tuple(made)
